// The training prompts one after the other, epoch after epoch, in any portions: a step that draws again takes exactly
// as many as it misses.
#pragma once

#include "data/loader.h"

namespace tandem {

struct StreamState {
  LoaderState loader;  // of the batch that the next prompt is in
  uint64_t taken = 0;  // prompts of that batch that are used up
};

// Not thread-safe.
class PromptStream {
 public:
  // `dataset` must outlive it. Errors are the loader's.
  PromptStream(const PromptDataset& dataset, const LoaderOptions& options, const StreamState& start = {});

  std::vector<PromptPtr> take(size_t count);
  StreamState state() const;  // give it to a new stream: it goes on from here

 private:
  void fetch();

  PromptLoader loader_;
  LoaderState before_;  // of the loader, before `batch_`
  PromptBatch batch_;
  size_t used_ = 0;
};

}  // namespace tandem
