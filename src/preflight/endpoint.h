// Whether the reward server answers.
#pragma once

#include <string>

#include "preflight/finding.h"

namespace tandem {

struct Endpoint {
  std::string scheme, host, path;  // "http", "judge", "/classify"
  int port = 0;
};
// ConfigError for what is no http or https URL.
Endpoint host_of(const std::string& url);

// GET /health of an http server; an https one is only connected to. Servers that do not know /health are alive too.
Finding check_endpoint(const std::string& url, double timeout_seconds);

}  // namespace tandem
