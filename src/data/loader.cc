#include "data/loader.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"
#include "base/fnv.h"
#include "base/rng.h"

namespace tandem {
namespace {

uint64_t fingerprint_of(const PromptDataset& dataset, const LoaderOptions& options) {
  uint64_t hash = kFnvStart;
  for (const uint64_t word : {options.batch_size, options.seed}) hash = fnv1a(hash, word);
  for (const bool flag : {options.shuffle, options.drop_last}) hash = fnv1a(hash, uint64_t{flag});
  for (size_t i = 0; i < dataset.size(); ++i) {
    hash = fnv1a(hash, dataset[i]->id);
    hash = fnv1a(hash, uint64_t{dataset[i]->token_ids.size()});
  }
  return hash == 0 ? 1 : hash;
}

uint64_t count_batches(const PromptDataset& dataset, const LoaderOptions& options) {
  if (options.batch_size == 0) throw ConfigError("the batch size of prompts is 0; it must be at least 1");
  const uint64_t full = dataset.size() / options.batch_size;
  if (options.drop_last && full == 0)
    throw DataError(
        fmt::format("the data set has {} prompts, fewer than one batch of {}; lower data.train_batch_size or add data",
                    dataset.size(), options.batch_size));
  return !options.drop_last && dataset.size() % options.batch_size ? full + 1 : full;
}

void advance(LoaderState* state, uint64_t batches_per_epoch) {
  if (++state->next_batch_in_epoch < batches_per_epoch) return;
  state->next_batch_in_epoch = 0;
  ++state->epoch;
}

}  // namespace

std::vector<size_t> epoch_order(size_t size, uint64_t seed, uint64_t epoch, bool shuffle) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  if (!shuffle) return order;
  Philox random(seed, epoch);
  for (size_t i = size; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

PromptLoader::PromptLoader(const PromptDataset& dataset, const LoaderOptions& options, const LoaderState& start)
    : dataset_(dataset), options_(options), batches_per_epoch_(count_batches(dataset, options)), state_(start) {
  state_.fingerprint = fingerprint_of(dataset, options);
  if (start.fingerprint != 0 && start.fingerprint != state_.fingerprint)
    throw DataError(
        "the saved place in the data belongs to other data, batch size, seed or shuffling; resume with those of the "
        "saved run or start afresh");
  if (start.next_batch_in_epoch >= batches_per_epoch_)
    throw DataError(
        fmt::format("the saved place in the data is batch {} of an epoch that has {}; resume with the "
                    "data and batch size of the saved run",
                    start.next_batch_in_epoch, batches_per_epoch_));
  producer_ = std::jthread([this, start = state_](const std::stop_token& stop) { produce(stop, start); });
}

PromptLoader::~PromptLoader() = default;

PromptBatch PromptLoader::make_batch(const std::vector<size_t>& order, const LoaderState& position) const {
  PromptBatch batch{position.epoch, position.next_batch_in_epoch, {}};
  const size_t begin = position.next_batch_in_epoch * options_.batch_size;
  const size_t end = std::min(begin + options_.batch_size, order.size());
  for (size_t i = begin; i < end; ++i) batch.prompts.push_back(dataset_[order[i]]);
  return batch;
}

void PromptLoader::produce(const std::stop_token& stop, LoaderState position) {
  const size_t most = std::max<size_t>(options_.prefetch, 1);
  while (!stop.stop_requested()) {
    const auto order = epoch_order(dataset_.size(), options_.seed, position.epoch, options_.shuffle);
    for (const uint64_t epoch = position.epoch; position.epoch == epoch; advance(&position, batches_per_epoch_)) {
      PromptBatch batch = make_batch(order, position);
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this, most] { return ready_.size() < most; })) return;
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  }
}

PromptBatch PromptLoader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty(); });
  PromptBatch batch = std::move(ready_.front());
  ready_.pop_front();
  advance(&state_, batches_per_epoch_);
  waited_ += std::chrono::steady_clock::now() - begin;
  changed_.notify_all();
  return batch;
}

LoaderState PromptLoader::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

double PromptLoader::seconds_waited() const {
  const std::lock_guard lock(mutex_);
  return waited_.count();
}

}  // namespace tandem
