// Batches of prompts, epoch after epoch without end. The order of an epoch is a Fisher-Yates shuffle drawn from
// Philox(seed, epoch): a pure function of the two, so a run resumes exactly from two numbers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/types.h"

namespace tandem {

struct LoaderOptions {
  size_t batch_size = 0;  // prompts
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = true;  // an epoch's incomplete last batch: dropped (training, as in verl) or handed out short
  size_t prefetch = 2;    // batches made ahead
};

// The batch that comes next. `fingerprint` ties it to the data and options it counts in; 0 skips that check.
struct LoaderState {
  uint64_t epoch = 0;
  uint64_t next_batch_in_epoch = 0;
  uint64_t fingerprint = 0;
  bool operator==(const LoaderState&) const = default;
};

struct PromptBatch {
  uint64_t epoch = 0;
  uint64_t index_in_epoch = 0;
  std::vector<PromptPtr> prompts;
};

// next(), state() and seconds_waited() may be called from several threads; batches then go to whoever asks.
class PromptLoader {
 public:
  // `dataset` must outlive the loader. DataError when it is smaller than one batch (or empty, without drop_last), or
  // when `start` was saved with other data or options.
  PromptLoader(const PromptDataset& dataset, const LoaderOptions& options, const LoaderState& start = {});
  ~PromptLoader();
  PromptLoader(const PromptLoader&) = delete;
  PromptLoader& operator=(const PromptLoader&) = delete;

  PromptBatch next();
  LoaderState state() const;  // give it to a new loader: its first batch is the one next() would return now
  uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  double seconds_waited() const;  // total that next() waited for batches: starvation

 private:
  void produce(const std::stop_token& stop, LoaderState position);
  PromptBatch make_batch(const std::vector<size_t>& order, const LoaderState& position) const;

  const PromptDataset& dataset_;
  const LoaderOptions options_;
  uint64_t batches_per_epoch_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<PromptBatch> ready_;
  LoaderState state_;
  std::chrono::duration<double> waited_{0};
  std::jthread producer_;  // last: it uses the members above and stops first
};

// The order of one epoch: a permutation of [0, size).
std::vector<size_t> epoch_order(size_t size, uint64_t seed, uint64_t epoch, bool shuffle);

}  // namespace tandem
