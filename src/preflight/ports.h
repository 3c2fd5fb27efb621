// Whether the ports that a run listens on are free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "preflight/finding.h"

namespace tandem {

struct ListeningPort {
  std::string key;   // what sets it
  std::string host;  // an IPv4 address
  int64_t port = 0;  // 0: any free one
};

Finding check_ports(const std::vector<ListeningPort>& ports);

}  // namespace tandem
