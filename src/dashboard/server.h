// The dashboard over HTTP: the page, what it asks for, server-sent events, Prometheus' /metrics. Only reads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dashboard/answers.h"

namespace tandem {

struct DashboardOptions {
  std::vector<std::filesystem::path> roots;  // folders of runs, or runs
  std::string host = "127.0.0.1";
  int port = 0;            // 0: any that is free
  TokenTexts token_texts;  // may be empty
};

// Serves from threads of its own until it is destroyed.
class Dashboard {
 public:
  // ConfigError when the address cannot be listened on; `key` is what set the port.
  Dashboard(DashboardOptions options, std::string_view key);
  ~Dashboard();

  std::string url() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
