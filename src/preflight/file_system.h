// What kind of file system a path lies on, how much room it has, and how Lustre spreads files over its servers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "preflight/system_files.h"

namespace tandem {

struct StripeLayout {
  uint32_t stripe_bytes = 0;
  uint32_t stripe_count = 0;  // 0xffff: over all servers
};

struct FileSystem {
  std::string kind;     // "ext4", "lustre", "nfs", ...; "unknown" where neither the mounts nor the magic say
  std::string source;   // what is mounted
  bool shared = false;  // between machines
  bool memory = false;  // gone with the machine
  int64_t total_bytes = 0, free_bytes = 0;  // free: to this user
  std::optional<StripeLayout> stripes;
};

// Of the nearest folder that exists. IoError where there is none.
FileSystem file_system_of(const std::filesystem::path& path, const SystemFiles& system);

// The parts of it. Kinds by statfs(2)'s f_type; nothing for one that is not known.
std::optional<std::string> kind_of_magic(uint64_t magic);
struct Mount {
  std::string kind, source;
};
// The mount that holds `path`, by the text of /proc/self/mountinfo: the longest mount point that begins it.
std::optional<Mount> mount_of(std::string_view mountinfo, const std::filesystem::path& path);
bool is_shared(std::string_view kind);
// The extended attribute lustre.lov (lov_user_md, versions 1 and 3, and the first component of composite ones).
std::optional<StripeLayout> parse_lustre_layout(std::span<const std::byte> attribute);

}  // namespace tandem
