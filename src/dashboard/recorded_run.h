// One run's folder as the dashboard knows it. Only reads.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "dashboard/line_tail.h"
#include "dashboard/samples_index.h"
#include "dashboard/series.h"

namespace tandem {

struct RunStatus {
  std::string id;
  size_t rows = 0;
  double last_step = 0, first_step = 0, seconds = 0;
  int64_t updated = 0;      // when metrics.jsonl was written last, in Unix seconds
  uint64_t generation = 0;  // counts how often its records began anew
  size_t warnings = 0, errors = 0;
  bool finished = false, failed = false;  // as log.jsonl says; neither: it runs, or was killed
};

// Thread-safe: samples and the rest are guarded apart, so that a long look at samples keeps no chart waiting.
class RecordedRun {
 public:
  RecordedRun(std::string id, std::filesystem::path folder);

  const std::string& id() const { return id_; }
  const std::filesystem::path& folder() const { return folder_; }

  struct News {
    bool changed = false, more = false;  // more: there is more to read at once
  };
  News poll(size_t max_bytes);  // reads on
  RunStatus status() const;
  std::vector<int64_t> traces() const;                              // steps with a trace_step_N.json, ascending
  std::deque<std::string> log_lines() const;                        // the newest lines of log.jsonl, as they are
  std::vector<std::pair<std::string, std::string>> config() const;  // dotted keys of config.yaml; empty: none

  template <class Look>
  auto with_series(const Look& look) const {
    const std::lock_guard lock(mutex_);
    return look(series_);
  }
  template <class Look>
  auto with_samples(const Look& look) {
    const std::lock_guard lock(samples_mutex_);
    return look(samples_);
  }

 private:
  void add_log_line(std::string_view line);

  const std::string id_;
  const std::filesystem::path folder_;
  mutable std::mutex mutex_;  // guards all but the samples
  LineTail metrics_tail_, log_tail_;
  RunSeries series_;
  std::deque<std::string> log_;
  RunStatus status_;
  std::mutex samples_mutex_;
  SamplesIndex samples_;
};

}  // namespace tandem
