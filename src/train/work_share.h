// Which samples of a mini-batch a rank computes: by what they cost, so that all ranks finish together.
#pragma once

#include <vector>

#include "parallel/communicator.h"
#include "train/batching.h"

namespace tandem {

struct WorkShare {
  std::vector<size_t> mine;       // ascending
  size_t most_micro_batches = 0;  // of any rank: every rank takes part in so many
  double imbalance = 0;           // see balance.h
};

// `ranks`: with those that split their sequences, which have the same samples. `bytes_per_token`: of activations.
// The samples of a prompt stay together where there are prompts enough to balance, so that it is computed once. Every
// rank comes to the same result from the same samples.
WorkShare share_work(const Decoder& decoder, SampleList samples, const BatchingOptions& options,
                     const Communicator& ranks, int64_t bytes_per_token);

}  // namespace tandem
