#include "serve/serve_metrics.h"

#include <fmt/format.h>

#include "serve/engine_loop.h"

namespace tandem {
namespace {

std::string line(const std::string& name, const std::string& type, const std::string& help, double value) {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
}

std::string engine_text(const EngineCounts& e) {
  const auto d = [](auto value) { return static_cast<double>(value); };
  std::string out;
  out += line("tandem_sequences_running", "gauge", "Sequences that hold cache blocks.", d(e.running));
  out += line("tandem_sequences_waiting", "gauge", "Sequences that wait for their turn.", d(e.waiting));
  out += line("tandem_kv_blocks", "gauge", "Blocks of the paged cache.", d(e.blocks));
  out += line("tandem_kv_blocks_free", "gauge", "Blocks that no sequence holds.", d(e.free_blocks));
  out += line("tandem_weights_version", "gauge", "Version of the weights that answer.", d(e.weights_version));
  out += line("tandem_prompt_tokens_total", "counter", "Prompt tokens of requests.", d(e.stats.num_prompt_tokens));
  out +=
      line("tandem_generated_tokens_total", "counter", "Tokens of finished replies.", d(e.stats.num_response_tokens));
  out += line("tandem_computed_tokens_total", "counter", "Tokens computed.", d(e.stats.num_computed_tokens));
  out +=
      line("tandem_cached_tokens_total", "counter", "Tokens found in the prefix cache.", d(e.stats.num_cached_tokens));
  out +=
      line("tandem_preemptions_total", "counter", "Sequences set back for want of blocks.", d(e.stats.num_preempted));
  out += line("tandem_forward_passes_total", "counter", "Forward passes.", d(e.stats.num_passes));
  out += line("tandem_requests_cancelled_total", "counter", "Requests whose client went away.", d(e.cancelled));
  return out;
}

}  // namespace

void LatencyHistogram::add(double seconds) {
  for (size_t i = 0; i < kBounds.size(); ++i)
    if (seconds <= kBounds[i]) ++counts_[i];
  ++count_;
  sum_ += seconds;
}

std::string LatencyHistogram::text(const std::string& name, const std::string& help) const {
  std::string out = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  for (size_t i = 0; i < kBounds.size(); ++i)
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], counts_[i]);
  return out + fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count_, sum_);
}

void ServeMetrics::add_reply(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++replies_[{path, status}];
  request_.add(seconds);
}

void ServeMetrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServeMetrics::add_token_pace(double seconds) {
  const std::lock_guard lock(mutex_);
  token_pace_.add(seconds);
}

void ServeMetrics::add_scored(int64_t replies) {
  const std::lock_guard lock(mutex_);
  scored_ += replies;
}

std::string ServeMetrics::text(const EngineCounts* engine, size_t num_connections) const {
  const std::lock_guard lock(mutex_);
  std::string out =
      "# HELP tandem_http_requests_total Requests answered, by path and status.\n"
      "# TYPE tandem_http_requests_total counter\n";
  for (const auto& [key, count] : replies_)
    out += fmt::format("tandem_http_requests_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  out += request_.text("tandem_request_seconds", "From a request's arrival to its reply, or a stream's beginning.");
  out += line("tandem_connections", "gauge", "Open connections.", static_cast<double>(num_connections));
  if (engine == nullptr)
    return out + line("tandem_scored_replies_total", "counter", "Replies scored.", static_cast<double>(scored_));
  out += first_token_.text("tandem_first_token_seconds", "From a request's arrival to its first token.");
  out += token_pace_.text("tandem_token_seconds", "Per token after the first, the mean of a request.");
  return out + engine_text(*engine);
}

}  // namespace tandem
