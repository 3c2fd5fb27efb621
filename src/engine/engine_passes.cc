// The engine's passes between sampling and update that only some algorithms ask for.
#include "engine/engine.h"
#include "engine/response_pass.h"
#include "train/squared_probs.h"

namespace tandem {
CorrectedBatch Engine::correct_rollout(const RolloutBatch& batch) {
  ResponsePass pass;
  std::vector<size_t> stale;
  std::vector<CorrectionRow> rows(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const TrajectoryPtr t = store_->get(batch[i].handle);
    rows[i].mask = token_mask(*t, store_->record(batch[i].handle).mask);
    rows[i].old_logprobs = rows[i].rollout_logprobs = t->rollout_logprobs;
    if (options_.exact && t->policy_version == policy_version_) continue;
    stale.push_back(i);
    pass.add(t);
  }
  auto logprobs = packed_logprobs(*decoder_, pass.items, pass.temperatures, options_.trainer.max_micro_tokens);
  for (size_t k = 0; k < stale.size(); ++k) rows[stale[k]].old_logprobs = std::move(logprobs[k]);
  CorrectedBatch out{batch, tandem::correct_rollout(rows, options_.correction)};
  for (size_t i = 0; i < batch.size(); ++i) {
    out.samples[i].trained_length = trained_length(rows[i].mask);
    const TrajectoryHandle handle = batch[i].handle;
    store_->set(handle, &TokenRecord::old_logprobs, std::move(rows[i].old_logprobs));
    store_->set(handle, &TokenRecord::importance_weights, std::move(rows[i].weights));
    store_->set(handle, &TokenRecord::mask, std::move(rows[i].mask));
  }
  return out;
}

RolloutBatch Engine::compute_squared_probs(const RolloutBatch& batch) {
  const ResponsePass pass = pass_over(batch, *store_);
  auto sums = packed_squared_probs(*decoder_, pass.items, pass.temperatures, options_.trainer.max_micro_tokens);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (options_.on_tokens) options_.on_tokens(static_cast<int64_t>(sums[i].size()));
    store_->set(batch[i].handle, &TokenRecord::sum_squared_probs, std::move(sums[i]));
  }
  return batch;
}

}  // namespace tandem
