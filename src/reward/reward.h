// Scores of finished responses. A score is finite or an error names the sample: nothing is ever counted as 0 because
// it could not be judged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/types.h"
#include "observe/metrics.h"
#include "reward/server_options.h"

namespace tandem {

struct RewardRequest {
  std::string data_source;
  std::string solution_str;  // the decoded response, special tokens skipped
  std::string ground_truth;  // text; numbers, lists and objects of the data set as JSON text
  std::string extra_info;    // a JSON object; empty means {}
  bool finished = true;      // ended by itself (end of text, stop) rather than by the length limit
  uint64_t prompt_id = 0;    // with sample_index: its name in errors
  uint32_t sample_index = 0;
  std::vector<Message> messages;  // the conversation that was answered
};
std::string sample_name(const RewardRequest& request);  // "sample 1 of prompt 17"

struct RewardResult {
  double score = 0;
  std::vector<std::pair<std::string, double>> extra;  // further numbers for the metrics, e.g. {"acc", 1}
};

class RewardFunction {
 public:
  virtual ~RewardFunction() = default;
  // Starts scoring a sample. The future holds its result, or the DataError that names it. Thread-safe.
  virtual std::future<RewardResult> submit(RewardRequest request) = 0;
  // What it measured of itself since the last call. Thread-safe.
  virtual Metrics take_metrics() { return {}; }

  // Submits all and waits: one result a request, in order. Throws what the first request that failed gave.
  std::vector<RewardResult> score(std::span<const RewardRequest> requests);
};

struct RewardOptions {
  std::string rule;  // one of rule_names() for every sample; empty: by data_source
  // reward.custom_reward_function: the user's Python, which wins over the rules when `path` is set (function.h).
  std::filesystem::path path;
  std::string name = "compute_score";
  std::string reward_kwargs;     // a JSON object passed as keyword arguments; empty means none
  size_t num_workers = 8;        // reward.num_workers: Python processes
  double timeout_seconds = 300;  // for one sample
  RewardServerOptions server;    // wins over the rules too when its endpoint is set (server.h)
};
// ConfigError for an unknown rule, a Python file that cannot be imported or lacks the function, a server that cannot be
// used; IoError for one that is not there.
std::unique_ptr<RewardFunction> make_reward(const RewardOptions& options);

// The rule for a data_source (rules.h); DataError naming it, the known ones and the way out.
std::string rule_for_data_source(const std::string& data_source);

// DataError unless the score is a finite number.
void check_score(double score, const RewardRequest& request);

}  // namespace tandem
