// Writes checkpoints beside training, one at a time. What fails is reported, and training goes on: the checkpoint
// before stays as it is.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "checkpoint/manager.h"
#include "checkpoint/write_pace.h"
#include "observe/metrics.h"

namespace tandem {

struct SaveReport {
  int64_t step = 0;
  std::filesystem::path folder;
  double seconds = 0, gigabytes = 0;  // of weights and moments
  double peak_gigabytes = 0;          // in the second that took most
  std::string error;                  // empty: it is on disk
  std::string upload_error;           // empty: it is there too, or was not to be
};

class CheckpointWriter {
 public:
  // `checkpoints` must outlive it.
  CheckpointWriter(CheckpointManager& checkpoints, double max_bytes_per_s)
      : checkpoints_(checkpoints), pace_(max_bytes_per_s) {}
  ~CheckpointWriter() { wait(); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  using Fill = std::function<void(const std::filesystem::path& folder, WritePace* pace)>;
  // `fill` writes the folder's files in a thread of its own; then the folder is published, and `upload` (may be empty)
  // is called with it. What they use must live until the report. Waits for the save before.
  void start(int64_t step, Fill fill, Fill upload = {});
  void wait();                              // until nothing is being written
  std::optional<SaveReport> take_report();  // of saves that ended, in order

 private:
  SaveReport write(int64_t step, const Fill& fill, const Fill& upload);

  CheckpointManager& checkpoints_;
  WritePace pace_;
  std::future<SaveReport> under_way_;
  std::deque<SaveReport> ended_;
};

// Whether a copy of so many bytes leaves the machine enough free memory.
bool fits_in_memory(uint64_t bytes);

// timing_s/checkpoint_write, perf/checkpoint_gb, perf/checkpoint_gb_per_s and _peak_gb_per_s.
Metrics metrics_of(const SaveReport& report);

}  // namespace tandem
