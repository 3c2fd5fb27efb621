// Validation scores under verl's names: val-core/<data_source>/<variable>/<metric> and val-aux/... .
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "observe/metrics.h"

namespace tandem {

// One response to one validation prompt.
struct ValidationSample {
  std::string data_source;
  uint64_t prompt = 0;              // responses to the same prompt share it, whatever their order
  double score = 0;                 // becomes the variable "reward"
  std::optional<double> acc;        // becomes "acc"
  std::optional<std::string> pred;  // the answer that majority votes count
  std::vector<Metric> extras;       // further numbers from the reward function, each a variable
};

// For every data source and variable, over the N responses of a prompt, then averaged over the prompts:
//   mean@N; and for N > 1 also std@N (divisor N), and for n = 2, 4, 8 ... below N, and N itself
//   best@n/{mean,std}, worst@n/{mean,std}, and where pred is given maj@n/{mean,std}: bootstrap, 1000 draws of n
//   responses with replacement. maj is the value of the first drawn response that gave the most frequent pred; of
//   equally frequent ones the first drawn.
// val-core holds mean, maj and best at the greatest N, for "acc" where it is given, else for "reward"; val-aux the
// rest. Differences from verl: the bootstrap draws come from Philox with seed 42, not NumPy's Mersenne Twister, so its
// figures agree to sampling error only; data sources may have different variables.
// Throws DataError when some samples of a data source lack a variable that others have: a mean over those that have it
// would mislead.
Metrics compute_validation_metrics(std::span<const ValidationSample> samples);

}  // namespace tandem
