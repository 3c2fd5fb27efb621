// What must be the same on all machines of a run, and what differs: parts with their versions, one hash over them, the
// subnets that are reached. Every machine prints its facts; one compares them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "preflight/finding.h"
#include "preflight/network.h"

namespace tandem {

using Versions = std::vector<std::pair<std::string, std::string>>;  // part -> version

struct NodeFacts {
  std::string host;
  Versions versions;
  std::vector<std::string> subnets;
};

std::string versions_hash(const Versions& versions);  // 16 hexadecimal digits

// A fingerprint of a model folder: names and sizes of its files, and the bytes of all that are small (config,
// tokenizer, the headers of the weights), so that it costs no pass over the weights.
std::string model_fingerprint(const std::filesystem::path& folder);

// The kernel's, the C library's, the driver's.
Versions system_versions(const SystemFiles& system);

std::string node_json(const NodeFacts& node);
// The "node" of a report, or such an object itself. DataError naming `source`.
NodeFacts parse_node(const std::string& json, const std::string& source);

// This machine's against the others'. Without others it prints the line that they are compared by.
Finding check_versions(const NodeFacts& here, const std::vector<NodeFacts>& others);

}  // namespace tandem
