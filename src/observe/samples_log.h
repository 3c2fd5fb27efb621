// Every finished sample as a line of samples.jsonl, for people and their scripts. Recovery does not read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "observe/backlog.h"
#include "observe/jsonl.h"

namespace tandem {

struct SampleRecord {
  int64_t step = 0;
  std::string data_source;
  std::string prompt;    // text; bytes that are not UTF-8 are written as U+FFFD
  std::string response;  // likewise
  std::string ground_truth;
  double score = 0;
  double reward = 0;
  double advantage = 0;
  std::string stop_reason;
  std::vector<int32_t> prompt_ids;  // the key is left out when empty
  std::vector<int32_t> response_ids;
  std::vector<float> logprobs;  // one a response id; the shortest text that reads back as the same float
};

// One JSON object on one line, keys in the order of the struct, always valid UTF-8, without a newline. Numbers that
// are not finite are the strings "NaN", "Infinity", "-Infinity".
std::string to_json(const SampleRecord& record);

// Thread-safe. Errors of the constructor are IoError naming the file; what cannot be written later waits.
class SamplesLog {
 public:
  // Drops what the file holds of steps after `resume_step`; absent: appends to what is there.
  explicit SamplesLog(const std::filesystem::path& path, std::optional<int64_t> resume_step = std::nullopt);
  void append(const SampleRecord& record);  // one write, complete when it returns

 private:
  std::mutex mutex_;
  JsonlWriter file_;
  Backlog<std::string> waiting_;
};

}  // namespace tandem
