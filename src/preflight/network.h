// How this machine can be reached by others: interfaces and their subnets, and RDMA ports (InfiniBand, RoCE).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "preflight/finding.h"
#include "preflight/system_files.h"

namespace tandem {

struct Interface {
  std::string name;
  bool up = false, loopback = false;
  std::string address;  // IPv4, "10.0.0.7"; empty: none
  int prefix = 0;       // bits of the subnet
  int mtu = 0;
  int64_t megabits = -1;  // per second; -1: unknown
};

struct RdmaPort {
  std::string name;  // "mlx5_0/1"
  bool active = false;
  std::string link;  // "InfiniBand", "Ethernet" (RoCE)
  std::string rate;  // "400 Gb/sec (4X NDR)"
};

struct Network {
  std::vector<Interface> interfaces;
  std::vector<RdmaPort> ports;
};

// Addresses come from the kernel's tables, the rest from sysfs below `system`.
Network read_network(const SystemFiles& system);
// Only what sysfs says: no addresses.
Network network_of_sysfs(const SystemFiles& system);

std::string subnet(const Interface& interface);  // "10.0.0.0/24"; empty without an address

// `nodes`: machines of the run. `chosen`: what NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name; empty: nothing.
Finding check_network(const Network& network, int64_t nodes, const std::string& chosen);

}  // namespace tandem
