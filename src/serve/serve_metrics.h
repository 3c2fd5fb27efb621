// What a server counts, in Prometheus' text format. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace tandem {

struct EngineCounts;

class LatencyHistogram {
 public:
  void add(double seconds);
  std::string text(const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array<double, 15> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                     0.5,   1,      2.5,   5,    10,    30,   60};
  std::array<uint64_t, kBounds.size()> counts_{};
  uint64_t count_ = 0;
  double sum_ = 0;
};

class ServeMetrics {
 public:
  void add_reply(const std::string& path, int status, double seconds);
  void add_first_token(double seconds);  // from the request to its first token
  void add_token_pace(double seconds);   // of a reply: a token after the first, on average
  void add_scored(int64_t replies);      // by a reward model
  // `engine`: null for a reward model.
  std::string text(const EngineCounts* engine, size_t num_connections) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> replies_;
  LatencyHistogram request_, first_token_, token_pace_;
  int64_t scored_ = 0;
};

}  // namespace tandem
