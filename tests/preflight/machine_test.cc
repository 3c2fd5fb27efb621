// Memory, GPUs and networks as sysfs and /proc describe them, in trees of our own.
#include <gtest/gtest.h>

#include "preflight/machine_memory.h"
#include "preflight/memory.h"
#include "preflight/network.h"
#include "preflight/topology.h"
#include "preflight/tree.h"

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr const char* kMeminfo =
    "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n";  // 32, 16 GiB

TEST(MachineMemory, WithoutGroupsIsTheMachines) {
  Tree tree;
  tree.write("/proc/meminfo", kMeminfo);
  const MachineMemory memory = machine_memory(tree.system());
  EXPECT_EQ(memory.total, 32 * kGiB);
  EXPECT_EQ(memory.available, 16 * kGiB);
  EXPECT_EQ(memory.limit, 0);
  EXPECT_EQ(memory.most(), 32 * kGiB);
}

TEST(MachineMemory, TheTightestGroupOfVersion2Counts) {
  Tree tree;
  tree.write("/proc/meminfo", kMeminfo).write("/proc/self/cgroup", "0::/jobs/one\n");
  tree.write("/sys/fs/cgroup/jobs/memory.max", "8589934592\n")
      .write("/sys/fs/cgroup/jobs/memory.current", "4294967296\n");
  tree.write("/sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 1073741824\n");
  tree.write("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  const MachineMemory memory = machine_memory(tree.system());
  EXPECT_EQ(memory.limit, 8 * kGiB);
  EXPECT_EQ(memory.available, 5 * kGiB);  // 8 - (4 used - 1 that is given back)
}

TEST(MachineMemory, GroupsOfVersion1) {
  Tree tree;
  tree.write("/proc/meminfo", kMeminfo).write("/proc/self/cgroup", "4:memory:/box\n0::/\n");
  tree.write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648");
  tree.write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824");
  tree.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  const MachineMemory memory = machine_memory(tree.system());
  EXPECT_EQ(memory.limit, 2 * kGiB);
  EXPECT_EQ(memory.available, kGiB);
}

MemoryEstimate estimate_of(int64_t peak) {
  MemoryEstimate estimate;
  estimate.roles.push_back({"actor", 1, 2, 3, 4, 5, 6});
  estimate.phases = {{"update", peak}};
  estimate.peak = estimate.host_peak = peak;
  return estimate;
}

TEST(CheckMemory, PassesWarnsAndFailsOnTheHost) {
  MachineMemory host;
  host.total = 32 * kGiB, host.available = 16 * kGiB;
  EXPECT_EQ(check_memory(estimate_of(15 * kGiB), {}, host).verdict, Verdict::kPass);
  EXPECT_EQ(check_memory(estimate_of(17 * kGiB), {}, host).verdict, Verdict::kWarn);
  const Finding failed = check_memory(estimate_of(33 * kGiB), {}, host);
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_NE(failed.why.find("33.00 GiB"), std::string::npos) << failed.why;
  EXPECT_FALSE(failed.remedy.empty());
  host.limit = 14 * kGiB, host.available = 14 * kGiB;
  EXPECT_NE(check_memory(estimate_of(15 * kGiB), {}, host).why.find("control group"), std::string::npos);
}

TEST(CheckMemory, OnAGpuTheShareCounts) {
  MachineMemory host;
  host.total = host.available = 512 * kGiB;
  const DeviceKind gpu{true, 100 * kGiB, 0.5};
  EXPECT_EQ(check_memory(estimate_of(49 * kGiB), gpu, host).verdict, Verdict::kPass);
  const Finding failed = check_memory(estimate_of(51 * kGiB), gpu, host);
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_NE(failed.remedy.find("gpu_memory_utilization"), std::string::npos);
  EXPECT_EQ(check_memory(estimate_of(kGiB), {true, 0, 0.5}, host).verdict, Verdict::kWarn);
}

void add_pci(Tree& tree, const std::string& name, const std::string& device_class, int node,
             const std::string& vendor = "0x10de") {
  const std::string folder = "/sys/bus/pci/devices/" + name;
  tree.write(folder + "/vendor", vendor + "\n").write(folder + "/class", device_class + "\n");
  tree.write(folder + "/numa_node", std::to_string(node) + "\n");
}

TEST(Topology, GroupsUnderOneNodeEach) {
  Tree tree;
  add_pci(tree, "0000:1b:00.0", "0x030200", 0);
  add_pci(tree, "0000:43:00.0", "0x030200", 0);
  add_pci(tree, "0000:9b:00.0", "0x030200", 1);
  add_pci(tree, "0000:c3:00.0", "0x030200", 1);
  add_pci(tree, "0000:00:1f.0", "0x060100", 0, "0x8086");
  const GpuTopology topology = gpu_topology(tree.system());
  ASSERT_EQ(topology.gpus.size(), 4u);
  EXPECT_EQ(topology.gpus[2].numa_node, 1);
  EXPECT_EQ(check_topology(topology, 4, 2).verdict, Verdict::kPass);
  const Finding across = check_topology(topology, 4, 4);
  EXPECT_EQ(across.verdict, Verdict::kWarn);
  EXPECT_NE(across.why.find("2 NUMA nodes"), std::string::npos) << across.why;
  EXPECT_EQ(check_topology(topology, 8, 2).verdict, Verdict::kFail);
}

TEST(Topology, SwitchesMakeOneDomain) {
  Tree tree;
  add_pci(tree, "0000:1b:00.0", "0x030200", 0);
  add_pci(tree, "0000:9b:00.0", "0x030200", 1);
  add_pci(tree, "0000:07:00.0", "0x068000", 0);
  const GpuTopology topology = gpu_topology(tree.system());
  EXPECT_EQ(topology.num_switches, 1);
  EXPECT_EQ(check_topology(topology, 2, 2).verdict, Verdict::kPass);
}

Interface interface(const std::string& name, const std::string& address, int prefix) {
  Interface out;
  out.name = name, out.up = true, out.address = address, out.prefix = prefix, out.mtu = 1500;
  return out;
}

TEST(Network, ReadsSysfs) {
  Tree tree;
  tree.write("/sys/class/net/lo/flags", "0x9\n").write("/sys/class/net/eth0/flags", "0x1003\n");
  tree.write("/sys/class/net/eth0/operstate", "up\n").write("/sys/class/net/eth0/mtu", "9000\n");
  tree.write("/sys/class/net/eth0/speed", "100000\n").write("/sys/class/net/eth1/flags", "0x1003\n");
  tree.write("/sys/class/net/eth1/operstate", "down\n");
  tree.write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  tree.write("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
  tree.write("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  const Network network = network_of_sysfs(tree.system());
  ASSERT_EQ(network.interfaces.size(), 3u);
  EXPECT_TRUE(network.interfaces[0].up);
  EXPECT_EQ(network.interfaces[0].mtu, 9000);
  EXPECT_EQ(network.interfaces[0].megabits, 100000);
  EXPECT_FALSE(network.interfaces[1].up);
  EXPECT_TRUE(network.interfaces[2].loopback);
  ASSERT_EQ(network.ports.size(), 1u);
  EXPECT_TRUE(network.ports[0].active);
  EXPECT_EQ(network.ports[0].name, "mlx5_0/1");
}

TEST(Network, SubnetsOfAddresses) {
  EXPECT_EQ(subnet(interface("a", "10.1.2.3", 20)), "10.1.0.0/20");
  EXPECT_EQ(subnet(interface("a", "192.168.7.9", 24)), "192.168.7.0/24");
  EXPECT_EQ(subnet(interface("a", "10.1.2.3", 32)), "10.1.2.3/32");
  EXPECT_EQ(subnet(interface("a", "", 0)), "");
}

TEST(Network, OneMachineNeedsNone) { EXPECT_EQ(check_network({}, 1, "").verdict, Verdict::kPass); }

TEST(Network, SeveralMachinesNeedOneWayToEachOther) {
  EXPECT_EQ(check_network({}, 2, "").verdict, Verdict::kFail);
  Network one{{interface("eth0", "10.0.0.5", 24)}, {}};
  EXPECT_EQ(check_network(one, 2, "").verdict, Verdict::kPass);
  Network two = one;
  two.interfaces.push_back(interface("docker0", "172.17.0.1", 16));
  EXPECT_EQ(check_network(two, 2, "").verdict, Verdict::kWarn);
  EXPECT_EQ(check_network(two, 2, "eth0").verdict, Verdict::kPass);
  const Finding absent = check_network(two, 2, "ib0");
  EXPECT_EQ(absent.verdict, Verdict::kFail);
  EXPECT_NE(absent.remedy.find("eth0, docker0"), std::string::npos) << absent.remedy;
}

TEST(Network, RdmaPortsAreAliveAndAlike) {
  const RdmaPort ib{"mlx5_0/1", true, "InfiniBand", "400 Gb/sec"}, roce{"mlx5_1/1", true, "Ethernet", "400 Gb/sec"};
  EXPECT_EQ(check_network({{}, {ib, ib}}, 1, "").verdict, Verdict::kPass);
  EXPECT_NE(check_network({{}, {ib, roce}}, 1, "").why.find("mixed"), std::string::npos);
  RdmaPort down = ib;
  down.active = false;
  EXPECT_EQ(check_network({{}, {ib, down}}, 1, "").verdict, Verdict::kWarn);
  RdmaPort slow = ib;
  slow.rate = "100 Gb/sec";
  EXPECT_EQ(check_network({{}, {ib, slow}}, 1, "").verdict, Verdict::kWarn);
}

}  // namespace
}  // namespace tandem
