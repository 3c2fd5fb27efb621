#include "train/trainer.h"

#include <algorithm>

#include "model/sequence_split.h"
#include "model/tensor_split.h"
#include "train/fsdp.h"
#include "train/head.h"
#include "train/pipeline.h"
#include "train/work_share.h"

namespace tandem {
namespace {

void add(UpdateStats& total, const UpdateStats& part) {
  total.loss += part.loss, total.pg_loss += part.pg_loss, total.kl_loss += part.kl_loss;
  total.entropy_loss += part.entropy_loss;
  total.clip_fraction += part.clip_fraction, total.clip_fraction_lower += part.clip_fraction_lower;
  total.ppo_kl += part.ppo_kl, total.grad_norm += part.grad_norm, total.lr = part.lr;
  total.num_optimizer_steps += part.num_optimizer_steps, total.num_tokens += part.num_tokens;
  total.num_computed_tokens += part.num_computed_tokens, total.num_skipped_samples += part.num_skipped_samples;
  total.imbalance += part.imbalance, total.work += part.work;
}

// Tells the loss the log-probs of every sample of a micro-batch that starts at chosen[first]. `sequences`: what has the
// other tokens' targets; null: all are here.
void set_sequences(MiniBatchLoss& loss, std::span<const size_t> chosen, size_t first, const PackedBatch& batch,
                   std::span<const TargetStats> stats, SampleList samples, SequenceSplit* sequences) {
  std::vector<std::vector<double>> logprobs;
  for (const TrainingSample* sample : samples) logprobs.emplace_back(num_tokens(*sample));
  for (size_t t = 0; t < stats.size(); ++t)
    logprobs[batch.targets[t].item][batch.targets[t].position] = stats[t].logprob;
  for (std::vector<double>& all : logprobs)
    if (sequences != nullptr) sequences->collect(all);
  for (size_t i = 0; i < samples.size(); ++i) loss.set_logprobs(chosen[first + i], std::move(logprobs[i]));
}

template <class T>
void keep_only(std::vector<T>& values, std::span<const size_t> which) {
  std::vector<T> kept;
  for (const size_t i : which) kept.push_back(values[i]);
  values = std::move(kept);
}

// Every rank's sums, so that all of them judge and report the same.
void add_up(Communicator& world, LossSums& sums) {
  double values[] = {sums.loss,          sums.pg_loss,
                     sums.kl_loss,       sums.entropy_loss,
                     sums.clip_fraction, sums.clip_fraction_lower,
                     sums.ppo_kl,        static_cast<double>(sums.num_computed_tokens)};
  all_reduce(world, "sum of losses", std::span<double>(values));
  sums = {values[0], values[1], values[2], values[3], values[4], values[5], values[6], static_cast<int64_t>(values[7])};
}

}  // namespace

UpdateStats Trainer::update(std::span<const TrainingSample> samples, const OnTokens& on_tokens) {
  UpdateStats total;
  DecoderWeights gradients =
      ranks_.sharded != nullptr ? ranks_.sharded->gradients() : zeros_of_trained(decoder_.weights());
  DecoderWeights& summed = ranks_.sharded != nullptr ? ranks_.sharded->gradient_shards() : gradients;
  if (ranks_.sharded != nullptr) set_to_zero(summed);
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    const auto order = epoch_samples(samples, options_, epoch, static_cast<uint64_t>(optimizer_.num_steps()));
    for (const auto& mini_batch : mini_batches(order, options_.mini_batch_samples)) {
      if (total.num_optimizer_steps + total.num_skipped_updates > 0) set_to_zero(summed);
      const bool unchanged = total.num_optimizer_steps == 0;
      UpdateStats part = accumulate(mini_batch, gradients, on_tokens, unchanged);
      const auto step = guarded_step(optimizer_, decoder_.weights(), gradients, part.loss, options_.lr_key, options_,
                                     mini_batch, unchanged, ranks_, decoder_.split());
      if (!step) {
        ++total.num_skipped_updates;
        continue;
      }
      part.grad_norm = step->grad_norm, part.lr = step->lr, part.num_optimizer_steps = 1;
      add(total, part);
    }
  }
  const auto steps = static_cast<double>(std::max<int64_t>(1, total.num_optimizer_steps));
  total.loss /= steps, total.pg_loss /= steps, total.kl_loss /= steps, total.entropy_loss /= steps,
      total.grad_norm /= steps, total.imbalance /= steps;
  const auto all = static_cast<double>(std::max<int64_t>(1, total.num_tokens));
  total.clip_fraction /= all, total.clip_fraction_lower /= all;
  total.ppo_kl /= static_cast<double>(std::max<int64_t>(1, total.num_computed_tokens));
  return total;
}

// Log-probs under the present weights, where the loss needs them before the first token's: those of the sampling while
// the weights are still the ones that sampled. A loss over the whole mini-batch takes a pass of its own for the others,
// on every rank, so that all choose the same tokens; a loss over sequences reads them off each micro-batch's forward.
void Trainer::provide_logprobs(std::span<const TrainingSample> samples, bool unchanged, MiniBatchLoss& loss) const {
  if (loss.scope() == LossScope::kToken) return;
  std::vector<size_t> missing;
  std::vector<PackItem> items;
  std::vector<double> temperatures;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Trajectory& trajectory = *samples[i].trajectory;
    if (unchanged && options_.weights_version == trajectory.policy_version) {
      loss.set_logprobs(i, {trajectory.rollout_logprobs.begin(), trajectory.rollout_logprobs.end()});
      continue;
    }
    missing.push_back(i);
    items.push_back(pack_item(samples[i]));
    temperatures.push_back(trajectory.temperature);
  }
  if (loss.scope() == LossScope::kSequence) return;
  check(ranks_.pipeline == nullptr, "a loss that chooses over the whole mini-batch needs all blocks on a rank");
  const auto logprobs = packed_logprobs(decoder_, items, temperatures, options_.max_micro_tokens);
  for (size_t i = 0; i < missing.size(); ++i) loss.set_logprobs(missing[i], {logprobs[i].begin(), logprobs[i].end()});
  loss.choose(options_.seed + static_cast<uint64_t>(optimizer_.num_steps()));
}

UpdateStats Trainer::accumulate(std::span<const TrainingSample> samples, DecoderWeights& gradients,
                                const OnTokens& on_tokens, bool unchanged) const {
  MiniBatchLoss loss(options_, samples);
  provide_logprobs(samples, unchanged, loss);
  UpdateStats stats;
  std::vector<size_t> chosen;
  std::vector<const TrainingSample*> computed;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (loss.contributes(i)) {
      chosen.push_back(i);
      computed.push_back(&samples[i]);
      continue;
    }
    ++stats.num_skipped_samples;
    if (on_tokens) on_tokens(static_cast<int64_t>(num_tokens(samples[i])));
  }
  stats.work = work_of_samples(computed);
  size_t rounds = 0;  // micro-batches of the rank that has most
  if (ranks_.sharded != nullptr) {
    const WorkShare share = share_work(decoder_, computed, options_, ranks_.sharded->world(), bytes_per_token());
    rounds = share.most_micro_batches, stats.imbalance = share.imbalance;
    keep_only(chosen, share.mine), keep_only(computed, share.mine);
  }
  const bool with_entropy = options_.entropy_coeff != 0;
  const HeadPass head = [&](size_t first, SampleList part, const PackedBatch& batch, const at::Tensor& x) {
    const std::vector<double> temperatures = temperatures_of(part);
    const auto known = [&](size_t i) { return loss.has_logprobs(i); };
    if (loss.scope() == LossScope::kSequence &&
        !std::ranges::all_of(chosen.begin() + first, chosen.begin() + first + part.size(), known))
      set_sequences(loss, chosen, first, batch, head_forward(decoder_, x, batch, temperatures, false), part,
                    decoder_.sequences());
    const TargetLoss target_loss = [&](size_t t, const TargetStats& target) {
      const PackTarget& where = batch.targets[t];
      return loss.token(chosen[first + where.item], where.position, target.logprob, target.entropy);
    };
    return head_forward_backward(decoder_, x, batch, temperatures, with_entropy, target_loss, gradients);
  };
  if (ranks_.pipeline != nullptr) {
    ranks_.pipeline->forward_backward(computed, options_, head, gradients, on_tokens, ranks_.sharded, rounds);
  } else {
    forward_backward(decoder_, computed, options_, head, gradients, on_tokens, ranks_.sharded);
  }
  static_cast<LossSums&>(stats) = loss.sums();
  finish(computed, rounds, gradients, stats);
  stats.num_tokens = loss.num_tokens();
  return stats;
}

// What the ranks owe each other when a rank's own samples are through.
void Trainer::finish(SampleList mine, size_t rounds, DecoderWeights& gradients, LossSums& sums) const {
  if (ranks_.pipeline != nullptr) ranks_.pipeline->from_last(bytes_of(&sums, 1));
  if (FullyShardedModel* sharded = ranks_.sharded) {
    const size_t done =
        ranks_.pipeline != nullptr ? rounds : micro_batch_ends(bytes_per_token(), mine, options_).size();
    for (size_t i = done; i < rounds; ++i) sharded->idle_micro_batch();
    sharded->finish_gradients();
    add_up(sharded->world(), sums);
  }
  DecoderWeights& summed = ranks_.sharded != nullptr ? ranks_.sharded->gradient_shards() : gradients;
  if (ranks_.pipeline != nullptr) ranks_.pipeline->finish_gradients(summed);
  if (decoder_.split() != nullptr) decoder_.split()->finish_gradients(summed);
}

int64_t Trainer::bytes_per_token() const {
  return ranks_.pipeline != nullptr ? ranks_.pipeline->activation_bytes_per_token()
                                    : activation_bytes_per_token(decoder_);
}

std::vector<std::vector<float>> packed_logprobs(const Decoder& decoder, std::span<const PackItem> items,
                                                std::span<const double> temperatures, int64_t max_micro_tokens) {
  auto all = values_of_tokens(items);
  for_packed(items, max_micro_tokens, decoder.on_device(), [&](size_t first, const PackedBatch& batch) {
    const at::Tensor x = decoder.forward_packed(batch.tokens);
    const auto stats = head_forward(decoder, x, batch, temperatures.subspan(first), false);
    for (size_t t = 0; t < stats.size(); ++t)
      all[first + batch.targets[t].item][batch.targets[t].position] = stats[t].logprob;
  });
  return all;
}

}  // namespace tandem
