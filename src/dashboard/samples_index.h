// Where each sample of samples.jsonl lies and what it is filtered by; the texts stay in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/line_tail.h"

namespace tandem {

struct SampleRow {
  uint64_t offset = 0;
  uint64_t prompt = 0;  // a hash of its text: equal for the same prompt in other steps
  uint32_t length = 0;
  int32_t step = 0;
  float score = 0, reward = 0, advantage = 0;
  uint16_t stop_reason = 0, data_source = 0;  // places in the lists of words
};

// Reads a line of samples.jsonl but for its ids and log-probs; nothing for what is no sample.
struct SampleHead {
  SampleRow row;
  std::string_view stop_reason, data_source;  // as they stand in the line
};
std::optional<SampleHead> parse_sample_head(std::string_view line);

enum class SampleOrder { kNewest, kOldest, kBest, kWorst };

struct SampleFilter {
  int64_t first_step = std::numeric_limits<int64_t>::min(), last_step = std::numeric_limits<int64_t>::max();
  double least_reward = -std::numeric_limits<double>::infinity(), most_reward = std::numeric_limits<double>::infinity();
  std::string stop_reason, data_source;  // empty: any
  std::optional<uint64_t> prompt;
  SampleOrder order = SampleOrder::kNewest;
};

// Not thread-safe.
class SamplesIndex {
 public:
  explicit SamplesIndex(std::filesystem::path path) : path_(path), tail_(std::move(path)) {}

  // Reads on, `max_bytes` at most. True: everything in the file is known.
  bool read(size_t max_bytes);

  std::vector<size_t> find(const SampleFilter& filter) const;
  size_t size() const { return rows_.size(); }
  const SampleRow& row(size_t i) const { return rows_.at(i); }
  std::string line(size_t i) const { return read_part(path_, rows_.at(i).offset, rows_.at(i).length); }
  const std::vector<std::string>& stop_reasons() const { return stop_reasons_; }
  const std::vector<std::string>& data_sources() const { return data_sources_; }

 private:
  void add(std::string_view line, uint64_t offset);

  std::filesystem::path path_;
  LineTail tail_;
  std::vector<SampleRow> rows_;
  std::vector<std::string> stop_reasons_, data_sources_;
};

}  // namespace tandem
