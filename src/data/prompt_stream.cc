#include "data/prompt_stream.h"

#include "base/error.h"

namespace tandem {

PromptStream::PromptStream(const PromptDataset& dataset, const LoaderOptions& options, const StreamState& start)
    : loader_(dataset, options, start.loader) {
  if (start.taken == 0) return;
  fetch();
  if (start.taken > batch_.prompts.size())
    throw DataError("the saved place in the data lies behind its batch; resume with the batch size of the saved run");
  used_ = start.taken;
}

void PromptStream::fetch() {
  before_ = loader_.state();
  batch_ = loader_.next();
  used_ = 0;
}

std::vector<PromptPtr> PromptStream::take(size_t count) {
  std::vector<PromptPtr> prompts;
  while (prompts.size() < count) {
    if (used_ == batch_.prompts.size()) fetch();
    prompts.push_back(batch_.prompts[used_++]);
  }
  return prompts;
}

StreamState PromptStream::state() const {
  if (used_ == batch_.prompts.size()) return {loader_.state(), 0};
  return {before_, used_};
}

}  // namespace tandem
