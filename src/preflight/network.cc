#include "preflight/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <set>

namespace tandem {
namespace {

constexpr int64_t kIsUp = 1, kIsLoopback = 8;  // of /sys/class/net/X/flags

uint32_t number_of(const std::string& address) {
  in_addr out{};
  return inet_pton(AF_INET, address.c_str(), &out) == 1 ? ntohl(out.s_addr) : 0;
}

void add_addresses(Network& network) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const auto found = std::ranges::find(network.interfaces, std::string(entry->ifa_name), &Interface::name);
    if (found == network.interfaces.end() || !found->address.empty()) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof text);
    found->address = text;
    found->prefix = std::popcount(reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr);
  }
}

std::string describe(const Interface& i) {
  return fmt::format("{} {} mtu {}{}", i.name,
                     i.address.empty() ? "no address" : fmt::format("{}/{}", i.address, i.prefix), i.mtu,
                     i.megabits > 0 ? fmt::format(" {} Mb/s", i.megabits) : "");
}

void check_rdma(const std::vector<RdmaPort>& ports, Finding& finding) {
  std::set<std::string> links, rates;
  for (const RdmaPort& port : ports) {
    finding.details.push_back(
        fmt::format("{} {} {} {}", port.name, port.active ? "active" : "DOWN", port.link, port.rate));
    if (!port.active) {
      finding.worsen(Verdict::kWarn, fmt::format("RDMA port {} is not active", port.name),
                     "plug it in or start it (ibstat shows why), or leave it out with NCCL_IB_HCA");
      continue;
    }
    links.insert(port.link), rates.insert(port.rate);
  }
  if (links.size() > 1)
    finding.worsen(Verdict::kWarn, "InfiniBand and RoCE ports are mixed: a collective runs at the slower one's speed",
                   "name those of one kind in NCCL_IB_HCA");
  if (rates.size() > 1)
    finding.worsen(Verdict::kWarn, "RDMA ports have different rates", "name those of one rate in NCCL_IB_HCA");
}

}  // namespace

Network network_of_sysfs(const SystemFiles& system) {
  Network out;
  for (const std::string& name : system.list("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    const int64_t flags = system.read_hex(folder + "/flags").value_or(0);
    Interface interface;
    interface.name = name;
    interface.up = (flags & kIsUp) != 0 && system.read(folder + "/operstate") != "down";
    interface.loopback = (flags & kIsLoopback) != 0;
    interface.mtu = static_cast<int>(system.read_number(folder + "/mtu").value_or(0));
    interface.megabits = system.read_number(folder + "/speed").value_or(-1);
    out.interfaces.push_back(std::move(interface));
  }
  for (const std::string& device : system.list("/sys/class/infiniband"))
    for (const std::string& port : system.list("/sys/class/infiniband/" + device + "/ports")) {
      const std::string folder = "/sys/class/infiniband/" + device + "/ports/" + port;
      out.ports.push_back({device + "/" + port,
                           system.read(folder + "/state").value_or("").find("ACTIVE") != std::string::npos,
                           system.read(folder + "/link_layer").value_or("unknown"),
                           system.read(folder + "/rate").value_or("unknown rate")});
    }
  return out;
}

Network read_network(const SystemFiles& system) {
  Network out = network_of_sysfs(system);
  add_addresses(out);
  return out;
}

std::string subnet(const Interface& interface) {
  if (interface.address.empty()) return "";
  const uint32_t mask = interface.prefix == 0 ? 0 : ~uint32_t{0} << (32 - interface.prefix);
  const in_addr net{htonl(number_of(interface.address) & mask)};
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &net, text, sizeof text);
  return fmt::format("{}/{}", text, interface.prefix);
}

Finding check_network(const Network& network, int64_t nodes, const std::string& chosen) {
  Finding finding{"network", Verdict::kPass, "", "", {}};
  std::set<std::string> subnets, mtus;
  std::vector<std::string> usable;
  for (const Interface& interface : network.interfaces) {
    if (interface.loopback || !interface.up) continue;
    finding.details.push_back(describe(interface));
    if (interface.address.empty()) continue;
    usable.push_back(interface.name);
    subnets.insert(subnet(interface));
  }
  finding.why = fmt::format("{} interfaces with an address, {} RDMA ports", usable.size(), network.ports.size());
  if (!chosen.empty() && std::ranges::find(usable, chosen) == usable.end())
    finding.worsen(
        Verdict::kFail,
        fmt::format("the environment names interface {} (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), which is not "
                    "there, down, or has no address",
                    chosen),
        fmt::format("name one of: {}", fmt::join(usable, ", ")));
  if (nodes > 1 && usable.empty())
    finding.worsen(Verdict::kFail,
                   fmt::format("{} machines are planned, and this one has no interface that is up and has "
                               "an address",
                               nodes),
                   "bring one up (ip addr shows them)");
  if (nodes > 1 && chosen.empty() && subnets.size() > 1)
    finding.worsen(
        Verdict::kWarn,
        fmt::format("interfaces lie in {} subnets ({}): machines may choose ones that do not reach each other",
                    subnets.size(), fmt::join(subnets, ", ")),
        "name the interface of the cluster's network in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME");
  check_rdma(network.ports, finding);
  return finding;
}

}  // namespace tandem
