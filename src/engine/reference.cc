#include "engine/reference.h"

#include "engine/engine.h"
#include "engine/response_pass.h"
#include "train/trainer.h"

namespace tandem {

Reference::Reference(const ReferenceOptions& options, std::shared_ptr<TrajectoryStore> store)
    : Reference(options, load_decoder(options.model_path, options.max_model_len, options.device), std::move(store)) {}

Reference::Reference(ReferenceOptions options, std::unique_ptr<Decoder> decoder, std::shared_ptr<TrajectoryStore> store)
    : options_(std::move(options)), store_(std::move(store)), decoder_(std::move(decoder)) {}

std::vector<std::vector<float>> Reference::logprobs_of(const RolloutBatch& batch) {
  const ResponsePass pass = pass_over(batch, *store_);
  return packed_logprobs(*decoder_, pass.items, pass.temperatures, options_.max_micro_tokens);
}

RolloutBatch Reference::compute_logprobs(const RolloutBatch& batch) {
  auto logprobs = logprobs_of(batch);
  RolloutBatch out = batch;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].kl = 0;
    const TokenRecord record = store_->record(out[i].handle);
    const TrajectoryPtr trajectory = store_->get(out[i].handle);
    const std::vector<uint8_t> mask = token_mask(*trajectory, record.mask);
    const std::vector<float>& old = old_logprobs(*trajectory, record.old_logprobs);
    for (size_t t = 0; t < logprobs[i].size(); ++t)
      if (mask[t] != 0) out[i].kl += token_kl(options_.kl_type, old[t], logprobs[i][t]).value;
    if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(logprobs[i].size()));
    store_->set(out[i].handle, &TokenRecord::ref_logprobs, std::move(logprobs[i]));
  }
  return out;
}

}  // namespace tandem
