#include "preflight/file_system.h"

#include <sys/statfs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Kind {
  uint64_t magic;
  const char* name;
};
// linux/magic.h, and the vendors' own.
constexpr Kind kKinds[] = {
    {0x0BD00BD0, "lustre"},  {0x6969, "nfs"},       {0x47504653, "gpfs"}, {0x19830326, "beegfs"}, {0x00C36400, "ceph"},
    {0x01021994, "tmpfs"},   {0x858458F6, "ramfs"}, {0xEF53, "ext4"},     {0x58465342, "xfs"},    {0x9123683E, "btrfs"},
    {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},   {0xFF534D42, "cifs"}, {0xFE534D42, "smb2"},   {0x65735546, "fuse"},
    {0x01021997, "9p"},      {0xAAD7AAEA, "panfs"},
};

// Also those that a mount names with more: nfs4, fuse.sshfs.
constexpr const char* kShared[] = {"lustre", "nfs", "gpfs",  "beegfs", "ceph",
                                   "cifs",   "smb", "panfs", "wekafs", "fuse."};

fs::path existing(fs::path path) {
  path = fs::absolute(path).lexically_normal();
  std::error_code error;
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return fs::canonical(path, error);
}

template <class T>
T read_at(std::span<const std::byte> bytes, size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// mountinfo writes blanks as \040.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool begins(const fs::path& path, const fs::path& prefix) {
  const auto [at, rest] = std::mismatch(prefix.begin(), prefix.end(), path.begin(), path.end());
  return at == prefix.end() || (at->empty() && std::next(at) == prefix.end());
}

std::optional<StripeLayout> lustre_layout(const fs::path& path) {
  std::array<std::byte, 4096> attribute;
  const ssize_t size = getxattr(path.c_str(), "lustre.lov", attribute.data(), attribute.size());
  if (size <= 0) return std::nullopt;
  return parse_lustre_layout(std::span(attribute).first(static_cast<size_t>(size)));
}

}  // namespace

std::optional<std::string> kind_of_magic(uint64_t magic) {
  const auto* found = std::ranges::find(kKinds, magic, &Kind::magic);
  if (found == std::end(kKinds)) return std::nullopt;
  return found->name;
}

bool is_shared(std::string_view kind) {
  return std::ranges::any_of(kShared, [&](const char* name) { return kind.starts_with(name); });
}

std::optional<Mount> mount_of(std::string_view mountinfo, const fs::path& path) {
  std::optional<Mount> best;
  size_t longest = 0;
  for (const std::string& line : split_lines(mountinfo)) {
    const auto words = split_blanks(line);  // id parent device root POINT options ... - KIND SOURCE options
    const auto dash = std::ranges::find(words, std::string("-"));
    if (words.size() < 6 || std::distance(dash, words.end()) < 3) continue;
    const std::string point = unescaped(words[4]);
    if (point.size() < longest || !begins(path, point)) continue;
    longest = point.size();
    best = Mount{dash[1], unescaped(dash[2])};
  }
  return best;
}

std::optional<StripeLayout> parse_lustre_layout(std::span<const std::byte> attribute) {
  constexpr uint32_t kVersion1 = 0x0BD10BD0, kVersion3 = 0x0BD30BD0, kComposite = 0x0BD60BD0;
  // magic, pattern, object id (16), stripe size, stripe count (16 bits)
  const auto magic = read_at<uint32_t>(attribute, 0);
  if ((magic == kVersion1 || magic == kVersion3) && attribute.size() >= 30)
    return StripeLayout{read_at<uint32_t>(attribute, 24), read_at<uint16_t>(attribute, 28)};
  if (magic != kComposite || attribute.size() < 32 + 48) return std::nullopt;
  // A header of 32 bytes, then entries of 48; the offset of the component's own layout stands at 24.
  const auto offset = read_at<uint32_t>(attribute, 32 + 24);
  if (offset < 32 + 48 || offset >= attribute.size()) return std::nullopt;
  const auto inner = attribute.subspan(offset);
  return read_at<uint32_t>(inner, 0) == kComposite ? std::nullopt : parse_lustre_layout(inner);
}

FileSystem file_system_of(const fs::path& path, const SystemFiles& system) {
  const fs::path there = existing(path);
  struct statfs facts {};
  if (there.empty() || statfs(there.c_str(), &facts) != 0)
    throw IoError(path.string() + " cannot be reached: " + std::strerror(errno) +
                  "; mount it, or choose another folder");
  FileSystem out;
  const auto mount = mount_of(system.read("/proc/self/mountinfo").value_or(""), there);
  const auto by_magic = kind_of_magic(static_cast<uint32_t>(facts.f_type));
  out.kind = mount ? mount->kind : by_magic.value_or("unknown");
  if (mount) out.source = mount->source;
  out.shared = is_shared(out.kind) || (by_magic && is_shared(*by_magic));
  out.memory = out.kind == "tmpfs" || out.kind == "ramfs";
  out.total_bytes = static_cast<int64_t>(facts.f_blocks) * facts.f_bsize;
  out.free_bytes = static_cast<int64_t>(facts.f_bavail) * facts.f_bsize;
  if (by_magic == "lustre") out.stripes = lustre_layout(there);
  return out;
}

}  // namespace tandem
