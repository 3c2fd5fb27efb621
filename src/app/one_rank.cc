#include "app/one_rank.h"

#include <cstring>

#include "base/rng.h"
#include "engine/engine.h"
#include "kernels/side_work.h"
#include "parallel/communicator_local.h"
#include "train/fsdp.h"
#include "train/head.h"
#include "train/work_share.h"

namespace tandem {
namespace {

constexpr int64_t kPositions = 256;
constexpr uint64_t kSteps = 2;

TrainerOptions trainer_options() {
  TrainerOptions options;
  options.mini_batch_samples = 20;  // the second one is smaller
  options.max_micro_tokens = 300;
  return options;
}

OptimizerOptions optimizer_options() {
  OptimizerOptions options;
  options.lr = 1e-2, options.clip_grad = 0.05;  // small enough to clip: the norm's bits matter
  return options;
}

std::vector<TrainingSample> random_samples(const ModelConfig& config, uint64_t seed) {
  Philox random(seed);
  const auto tokens = [&](size_t length) {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < length; ++i)
      ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(config.vocab_size))));
    return ids;
  };
  std::vector<TrainingSample> all;
  for (uint64_t p = 0; p < 8; ++p) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = p;
    prompt->token_ids = tokens(3 + random.below(60));
    for (uint32_t s = 0; s < 4; ++s) {
      auto t = std::make_shared<Trajectory>();
      t->prompt = prompt, t->sample_index = s;
      t->response_ids = tokens(2 + random.below(100));
      for (size_t i = 0; i < t->response_ids.size(); ++i)
        t->rollout_logprobs.push_back(-6.2f + 0.2f * static_cast<float>(random.uniform()));
      all.push_back({t, random.normal()});
    }
  }
  return all;
}

Decoder new_decoder(const ModelConfig& config, at::Device device) {
  DecoderWeights weights = empty_weights(config);
  init_random(weights, 3);
  return {config, placed_weights(std::move(weights), device, true), kPositions};
}

class RankByRank {
 public:
  RankByRank(Decoder& decoder, int ranks)
      : decoder_(decoder), optimizer_(decoder.weights(), optimizer_options()), group_(make_local_group(ranks)) {}

  Optimizer& optimizer() { return optimizer_; }

  void update(const std::vector<TrainingSample>& samples) {
    for (const auto& mini_batch : mini_batches(samples, options_.mini_batch_samples)) {
      const DecoderWeights total = zeros_of_trained(decoder_.weights());
      accumulate(mini_batch, total);
      optimizer_.step(decoder_.weights(), total);
    }
  }

 private:
  static void add(const DecoderWeights& to, const DecoderWeights& from) {
    const auto a = parameters(to), b = parameters(from);
    for (size_t p = 0; p < a.size(); ++p) kernels::accumulate(a[p].tensor, b[p].tensor);
  }

  // Round by round, and in a round in the ranks' order.
  void accumulate(std::span<const TrainingSample> samples, const DecoderWeights& total) {
    MiniBatchLoss loss(options_, samples);
    std::vector<const TrainingSample*> all;
    for (const TrainingSample& sample : samples) all.push_back(&sample);
    std::vector<WorkShare> shares;
    for (const auto& rank : group_)
      shares.push_back(share_work(decoder_, all, options_, *rank, activation_bytes_per_token(decoder_)));
    for (size_t round = 0; round < shares[0].most_micro_batches; ++round) {
      std::optional<DecoderWeights> sum;
      for (const WorkShare& share : shares) {
        DecoderWeights own = zeros_of_trained(decoder_.weights());
        micro_batch(samples, share.mine, round, loss, own);
        sum ? add(*sum, own) : static_cast<void>(sum = own);
      }
      add(total, *sum);
    }
  }

  void micro_batch(std::span<const TrainingSample> samples, const std::vector<size_t>& mine, size_t round,
                   MiniBatchLoss& loss, DecoderWeights& gradients) {
    std::vector<const TrainingSample*> theirs;
    for (const size_t i : mine) theirs.push_back(&samples[i]);
    const auto ends = micro_batch_ends(activation_bytes_per_token(decoder_), theirs, options_);
    if (round >= ends.size()) return;
    const size_t begin = round == 0 ? 0 : ends[round - 1], end = ends[round];
    std::vector<PackItem> items;
    for (size_t i = begin; i < end; ++i) items.push_back(pack_item(*theirs[i]));
    const PackedBatch batch = pack(items, decoder_.on_device());
    Activations kept = decoder_.forward_for_training(batch.tokens, true);
    const std::vector<double> temperatures(items.size(), 1.0);
    const at::Tensor dx = head_forward_backward(
        decoder_, kept.x_TE, batch, temperatures, false,
        [&](size_t t, const TargetStats& target) {
          const PackTarget& where = batch.targets[t];
          return loss.token(mine[begin + where.item], where.position, target.logprob, target.entropy);
        },
        gradients);
    decoder_.backward(batch.tokens, std::move(kept), dx, gradients);
  }

  TrainerOptions options_ = trainer_options();
  Decoder& decoder_;
  Optimizer optimizer_;
  std::vector<std::unique_ptr<Communicator>> group_;
};

bool same_bits(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  for (size_t p = 0; p < x.size(); ++p) {
    const at::Tensor one = x[p].tensor.cpu(), other = y[p].tensor.cpu();
    if (one.nbytes() != other.nbytes() || std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) != 0)
      return false;
  }
  return x.size() == y.size();
}

}  // namespace

ModelConfig one_rank_model(bool qwen) {
  ModelConfig c;
  c.architecture = qwen ? Architecture::kQwen3 : Architecture::kLlama;
  c.qk_norm = qwen, c.tie_word_embeddings = qwen;
  c.vocab_size = 520, c.hidden_size = 256, c.intermediate_size = 640, c.num_hidden_layers = 5;
  c.num_attention_heads = 16, c.num_key_value_heads = 8, c.head_dim = 64;
  c.max_position_embeddings = kPositions;
  return c;
}

bool trains_as_one_rank(Communicator& world, const Layout& layout, const ModelConfig& config, at::Device device) {
  Decoder decoder = new_decoder(config, device);
  FullyShardedModel sharded(decoder, world, layout);
  Optimizer optimizer(sharded.shards(), optimizer_options());
  for (uint64_t step = 0; step < kSteps; ++step) {
    sharded.enter_training();
    Trainer(decoder, optimizer, trainer_options(), {.sharded = &sharded}).update(random_samples(config, step));
    sharded.enter_rollout();
  }
  const DecoderWeights exact = sharded.gathered(masters(sharded.shards())),
                       first = sharded.gathered(optimizer.first_moment()),
                       second = sharded.gathered(optimizer.second_moment());
  if (world.rank() != 0) return true;
  Decoder alone = new_decoder(config, device);
  RankByRank reference(alone, layout.world());
  for (uint64_t step = 0; step < kSteps; ++step) reference.update(random_samples(config, step));
  return same_bits(decoder.weights(), alone.weights()) && same_bits(exact, masters(alone.weights())) &&
         same_bits(first, reference.optimizer().first_moment()) &&
         same_bits(second, reference.optimizer().second_moment());
}

}  // namespace tandem
