// What a training run does with a mini-batch whose loss or gradient is not finite: writes it down for `tandem replay`,
// then leaves it out or ends the run.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "model/decoder.h"
#include "train/batching.h"

namespace tandem {

struct NonFinitePolicy {
  std::filesystem::path run_folder, source_model;
  std::string config_yaml;  // goes along with each dump
  bool skip = false;
  int64_t most_dumps = 3;      // each holds the weights
  int64_t most_in_a_row = 10;  // then the run ends in any case
};

// Not thread-safe.
class NonFiniteGuard {
 public:
  explicit NonFiniteGuard(NonFinitePolicy policy) : policy_(std::move(policy)) {}

  void begin_step(int64_t step);  // counted from 1
  // True: leave it out. What cannot be written is a warning.
  bool operator()(const std::string& role, const NonFiniteUpdate& update, const Decoder& decoder);

 private:
  NonFinitePolicy policy_;
  int64_t step_ = 0, last_bad_step_ = 0, bad_steps_in_a_row_ = 0, num_dumps_ = 0;
};

}  // namespace tandem
