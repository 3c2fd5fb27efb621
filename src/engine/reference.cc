#include "engine/reference.h"

#include "engine/engine.h"
#include "engine/old_logprobs.h"
#include "train/trainer.h"

namespace tandem {

Reference::Reference(ReferenceOptions options, std::shared_ptr<TrajectoryStore> store)
    : options_(std::move(options)),
      store_(std::move(store)),
      decoder_(load_decoder(options_.model_path, options_.max_model_len, options_.device)) {}

RolloutBatch Reference::compute_logprobs(const RolloutBatch& batch) {
  std::vector<TrajectoryPtr> trajectories;
  std::vector<PackItem> items;
  std::vector<double> temperatures;
  for (const Sample& sample : batch) {
    const TrajectoryPtr& t = trajectories.emplace_back(store_->get(sample.handle));
    items.push_back({t->prompt->token_ids, t->response_ids});
    temperatures.push_back(t->temperature);
  }
  auto logprobs = packed_logprobs(*decoder_, items, temperatures, options_.max_micro_tokens);
  RolloutBatch out = batch;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].kl = 0;
    const TokenRecord record = store_->record(out[i].handle);
    const std::vector<uint8_t> mask = token_mask(*trajectories[i], record);
    const std::vector<float>& old = old_logprobs(*trajectories[i], record);
    for (size_t t = 0; t < logprobs[i].size(); ++t)
      if (mask[t] != 0) out[i].kl += token_kl(options_.kl_type, old[t], logprobs[i][t]).value;
    if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(logprobs[i].size()));
    store_->set(out[i].handle, &TokenRecord::ref_logprobs, std::move(logprobs[i]));
  }
  return out;
}

}  // namespace tandem
