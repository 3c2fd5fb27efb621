#include "preflight/machine_memory.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "observe/host_info.h"

namespace tandem {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Group {
  int64_t limit, used;  // used: without what the kernel gives back first
};

// A line of memory.stat.
int64_t stat(const SystemFiles& system, const std::string& folder, std::string_view key) {
  const auto text = system.read(folder + "/memory.stat");
  if (!text) return 0;
  for (const std::string& line : split_lines(*text)) {
    const auto words = split_blanks(line);
    if (words.size() == 2 && words[0] == key) return std::stoll(words[1]);
  }
  return 0;
}

struct Names {
  const char *limit, *used, *cache;
};
constexpr Names kVersion2{"/memory.max", "/memory.current", "inactive_file"};
constexpr Names kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

// The group at `path` below `root` and all that hold it.
void add_groups(const SystemFiles& system, const std::string& root, std::string path, const Names& names,
                std::vector<Group>& groups) {
  while (true) {
    const std::string folder = root + (path == "/" ? "" : path);
    if (const auto limit = system.read_number(folder + names.limit)) {
      const int64_t used = system.read_number(folder + names.used).value_or(0) - stat(system, folder, names.cache);
      groups.push_back({*limit, std::max<int64_t>(0, used)});
    }
    if (path.empty() || path == "/") return;
    path.erase(path.rfind('/'));
  }
}

std::vector<Group> groups_of_process(const SystemFiles& system) {
  std::vector<Group> groups;
  for (const std::string& line : split_lines(system.read("/proc/self/cgroup").value_or(""))) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) add_groups(system, "/sys/fs/cgroup", path, kVersion2, groups);
    if (controllers == "memory") add_groups(system, "/sys/fs/cgroup/memory", path, kVersion1, groups);
  }
  return groups;
}

}  // namespace

MachineMemory machine_memory(const SystemFiles& system) {
  const HostMemory host = parse_host_memory(system.read("/proc/meminfo").value_or(""));
  MachineMemory out;
  out.total = static_cast<int64_t>(host.total_gb * kGiB);
  out.available = static_cast<int64_t>(host.available_gb * kGiB);
  for (const Group& group : groups_of_process(system)) {
    if (out.total > 0 && group.limit >= out.total) continue;  // "none" is a number beyond any machine
    out.limit = out.limit == 0 ? group.limit : std::min(out.limit, group.limit);
    out.available = std::min(out.available, std::max<int64_t>(0, group.limit - group.used));
  }
  return out;
}

}  // namespace tandem
