#include "preflight/versions.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fnv.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kReadOfEach = 1 << 20;  // a safetensors header, a config, a tokenizer's beginning

std::string beginning_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(kReadOfEach, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

const std::string* find(const Versions& versions, const std::string& part) {
  for (const auto& [name, version] : versions)
    if (name == part) return &version;
  return nullptr;
}

bool share_a_subnet(const NodeFacts& a, const NodeFacts& b) {
  return std::ranges::any_of(
      a.subnets, [&](const std::string& net) { return std::ranges::find(b.subnets, net) != b.subnets.end(); });
}

}  // namespace

std::string versions_hash(const Versions& versions) {
  uint64_t hash = kFnvStart;
  for (const auto& [part, version] : versions) hash = fnv1a(fnv1a(hash, part + "\n"), version + "\n");
  return hex(hash);
}

std::string model_fingerprint(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_regular_file(error) && !entry.path().filename().string().starts_with("."))
      files.push_back(entry.path());
  std::ranges::sort(files);
  uint64_t hash = kFnvStart;
  for (const fs::path& file : files) {
    hash = fnv1a(hash, file.filename().string());
    hash = fnv1a(hash, static_cast<uint64_t>(fs::file_size(file, error)));
    hash = fnv1a(hash, beginning_of(file));
  }
  return hex(hash);
}

Versions system_versions(const SystemFiles& system) {
  Versions out;
  utsname name{};
  if (uname(&name) == 0) out.emplace_back("kernel", name.release);
  out.emplace_back("libc", gnu_get_libc_version());
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1  ..."
  if (const auto driver = system.read("/proc/driver/nvidia/version")) {
    const auto words = split_blanks(split_lines(*driver).front());
    const auto at = std::ranges::find(words, std::string("Module"));
    if (std::distance(at, words.end()) > 1) out.emplace_back("nvidia driver", at[1]);
  }
  return out;
}

std::string node_json(const NodeFacts& node) {
  nlohmann::ordered_json out;
  out["host"] = node.host;
  out["versions_hash"] = versions_hash(node.versions);
  out["versions"] = nlohmann::ordered_json::array();
  for (const auto& [part, version] : node.versions) out["versions"].push_back({part, version});
  out["subnets"] = node.subnets;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeFacts parse_node(const std::string& text, const std::string& source) {
  try {
    json object = json::parse(text);
    if (object.contains("node")) object = object.at("node");
    NodeFacts out;
    out.host = object.at("host").get<std::string>();
    out.versions = object.at("versions").get<Versions>();
    out.subnets = object.at("subnets").get<std::vector<std::string>>();
    return out;
  } catch (const json::exception&) {
    throw DataError(source + " is no report of tandem preflight --json; make it on the other machine with that flag");
  }
}

Finding check_versions(const NodeFacts& here, const std::vector<NodeFacts>& others) {
  Finding finding{"versions", Verdict::kPass, "", "", {}};
  finding.why = fmt::format("versions {}", versions_hash(here.versions));
  for (const auto& [part, version] : here.versions) finding.details.push_back(fmt::format("{:<16}{}", part, version));
  const char* remedy = "install the same build, wheels and model files on all machines";
  for (const NodeFacts& other : others) {
    for (const auto& [part, version] : here.versions) {
      const std::string* theirs = find(other.versions, part);
      if (theirs != nullptr && *theirs == version) continue;
      // Another kernel computes the same; anything else may not.
      finding.worsen(part == "kernel" ? Verdict::kWarn : Verdict::kFail,
                     fmt::format("{}: {} here, {} on {}", part, version, theirs ? *theirs : "absent", other.host),
                     remedy);
    }
    if (!share_a_subnet(here, other))
      finding.worsen(Verdict::kFail, fmt::format("no subnet in common with {}", other.host),
                     "name interfaces of one network in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME");
  }
  if (!others.empty() && finding.verdict == Verdict::kPass)
    finding.why += fmt::format(", the same on {} other machines", others.size());
  return finding;
}

}  // namespace tandem
