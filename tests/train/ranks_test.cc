// Every policy loss with every aggregation on two ranks, in each way of sharing the work, against one rank: the same
// loss, counts and gradient but for the order of sums.
#include <gtest/gtest.h>
#include <omp.h>

#include "model/tensor_split.h"
#include "parallel/communicator_local.h"
#include "train/fsdp.h"
#include "train/pipeline.h"
#include "train/random_policy.h"
#include "train/trainer.h"

namespace tandem {
namespace {

// Twelve responses of three prompts, off policy enough to be clipped on both sides, with a tool's gap, a response that
// is masked as a whole, one without advantage, and importance weights.
std::vector<TrainingSample> off_policy_samples(const ModelConfig& config) {
  std::vector<TrainingSample> samples = random_samples(config, 0);
  Philox random(8);
  for (TrainingSample& sample : samples) {
    auto moved = std::make_shared<Trajectory>(*sample.trajectory);
    const size_t length = std::min<size_t>(moved->response_ids.size(), 10);
    moved->response_ids.resize(length), moved->rollout_logprobs.resize(length);
    for (float& logprob : moved->rollout_logprobs) {
      logprob = -4.9F + 0.5F * static_cast<float>(random.normal());
      sample.ref_logprobs.push_back(logprob + 0.3F * static_cast<float>(random.normal()));
      sample.importance_weights.push_back(0.5F + static_cast<float>(random.uniform()));
      sample.mask.push_back(random.uniform() < 0.8 ? 1 : 0);
    }
    sample.mask.back() = 1;
    sample.trajectory = std::move(moved);
  }
  std::ranges::fill(samples[4].mask, 0);
  samples[7].advantage = 0;
  return samples;
}

std::vector<TrainerOptions> every_loss() {
  std::vector<TrainerOptions> all;
  for (const PolicyLossKind& kind : policy_losses())
    for (const char* name :
         {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}) {
      TrainerOptions options;
      options.policy = &kind;
      options.aggregation = parse_loss_aggregation(name);
      if (kind.aggregation && options.aggregation != *kind.aggregation) continue;
      options.norm_length = 40;
      options.max_micro_tokens = 90;
      options.policy_options.clip_cov_low = 0, options.policy_options.clip_cov_ratio = 0.2;
      options.policy_options.kl_cov_ratio = 0.2;
      all.push_back(options);
      options.use_kl_loss = true, options.kl_loss_coef = 0.3, options.entropy_coeff = 0.05;
      if (name == std::string_view("seq-mean-token-mean")) all.push_back(options);
    }
  return all;
}

bool chooses(const TrainerOptions& options) { return options.policy->scope == LossScope::kMiniBatch; }

struct Found {
  UpdateStats stats;
  DecoderWeights gradient;
};

std::vector<Found> one_rank(const ModelConfig& config) {
  std::vector<Found> all;
  Decoder decoder = random_decoder(config);
  Optimizer unused(decoder.weights(), {});
  const std::vector<TrainingSample> samples = off_policy_samples(config);
  for (const TrainerOptions& options : every_loss()) {
    Found found{{}, zero_weights(config)};
    found.stats = Trainer(decoder, unused, options).accumulate(samples, found.gradient);
    all.push_back(std::move(found));
  }
  return all;
}

void expect_same(const Found& found, const Found& wanted, const TrainerOptions& options) {
  const std::string name =
      std::string(options.policy->name) + " " + std::to_string(static_cast<int>(options.aggregation));
  EXPECT_NEAR(found.stats.loss, wanted.stats.loss, 1e-6 * (1 + std::abs(wanted.stats.loss))) << name;
  EXPECT_NEAR(found.stats.pg_loss, wanted.stats.pg_loss, 1e-6 * (1 + std::abs(wanted.stats.pg_loss))) << name;
  EXPECT_NEAR(found.stats.kl_loss, wanted.stats.kl_loss, 1e-6 * (1 + std::abs(wanted.stats.kl_loss))) << name;
  EXPECT_NEAR(found.stats.entropy_loss, wanted.stats.entropy_loss, 1e-5 * (1 + wanted.stats.entropy_loss)) << name;
  EXPECT_EQ(found.stats.clip_fraction, wanted.stats.clip_fraction) << name;
  EXPECT_EQ(found.stats.clip_fraction_lower, wanted.stats.clip_fraction_lower) << name;
  EXPECT_EQ(found.stats.num_computed_tokens, wanted.stats.num_computed_tokens) << name;
  EXPECT_EQ(found.stats.num_tokens, wanted.stats.num_tokens) << name;
  double norm = 0;
  const double difference = distance(found.gradient, wanted.gradient, norm);
  EXPECT_GT(norm, 0) << name;
  EXPECT_LE(difference, 1e-5 * norm) << name;
}

class EveryLossOnRanks : public testing::Test {
 protected:
  // fn(world, options) gives what this rank found of one loss after another.
  template <class Rank>
  void expect_same_on_two_ranks(const Rank& make_rank) {
    run_ranks(2, [&](Communicator& world) {
      omp_set_num_threads(1);
      const auto losses = every_loss();
      const auto found_of = make_rank(world);
      for (size_t i = 0; i < losses.size(); ++i)
        if (const std::optional<Found> found = found_of(losses[i])) expect_same(*found, wanted_[i], losses[i]);
    });
  }

  static ModelConfig small_model() {
    ModelConfig config = random_model(true);
    config.num_hidden_layers = 2, config.intermediate_size = 96;
    return config;
  }
  static void SetUpTestSuite() { wanted_ = one_rank(small_model()); }
  static void TearDownTestSuite() { wanted_.clear(); }

  const ModelConfig config_ = small_model();
  const std::vector<TrainingSample> samples_ = off_policy_samples(config_);
  static inline std::vector<Found> wanted_;
};

TEST_F(EveryLossOnRanks, TheCasesAreWorthTheName) {
  size_t clipped = 0;
  for (const Found& found : wanted_) {
    clipped += found.stats.clip_fraction > 0 ? 1 : 0;
    EXPECT_EQ(found.stats.num_tokens, wanted_[0].stats.num_tokens);
  }
  EXPECT_EQ(wanted_.size(), 9U * 6 + 3 * 2);
  EXPECT_GT(clipped, 15U);
}

TEST_F(EveryLossOnRanks, Sharded) {
  expect_same_on_two_ranks([&](Communicator& world) {
    struct Rank {
      Rank(const ModelConfig& config, Communicator& world)
          : decoder(random_decoder(config)), sharded(decoder, world, {.dp_shard = 2}) {
        sharded.enter_training();
      }
      Decoder decoder;
      FullyShardedModel sharded;
      Optimizer optimizer{sharded.shards(), {}};
    };
    return [&, rank = std::make_shared<Rank>(config_, world)](const TrainerOptions& options) -> std::optional<Found> {
      set_to_zero(rank->sharded.gradient_shards());
      Trainer trainer(rank->decoder, rank->optimizer, options, {.sharded = &rank->sharded});
      const UpdateStats stats = trainer.accumulate(samples_, rank->sharded.gradients());
      return Found{stats, rank->sharded.gathered(rank->sharded.gradient_shards())};
    };
  });
}

TEST_F(EveryLossOnRanks, TensorParallel) {
  expect_same_on_two_ranks([&](Communicator& world) {
    struct Rank {
      Rank(const ModelConfig& config, Communicator& world)
          : split(config, world.duplicate()),
            decoder(split.local_config(), split.part_of(random_decoder(config).weights()), 128) {
        decoder.split_by(&split);
      }
      TensorSplit split;
      Decoder decoder;
      Optimizer optimizer{decoder.weights(), {}};
    };
    return [&, rank = std::make_shared<Rank>(config_, world)](const TrainerOptions& options) -> std::optional<Found> {
      DecoderWeights part = zeros_of_trained(rank->decoder.weights());
      const UpdateStats stats = Trainer(rank->decoder, rank->optimizer, options).accumulate(samples_, part);
      return Found{stats, rank->split.gathered(part)};
    };
  });
}

// clip_cov and kl_cov are refused beside a pipeline: no rank of it has all blocks.
TEST_F(EveryLossOnRanks, Pipeline) {
  expect_same_on_two_ranks([&](Communicator& world) {
    struct Rank {
      Rank(const ModelConfig& config, Communicator& world)
          : decoder(random_decoder(config)), pipeline(decoder, world.duplicate()) {
        pipeline.enter_training();
      }
      Decoder decoder;
      Pipeline pipeline;
      Optimizer optimizer{pipeline.stage().weights(), {}};
    };
    return [&, rank = std::make_shared<Rank>(config_, world)](const TrainerOptions& options) -> std::optional<Found> {
      DecoderWeights part =
          mapped(rank->pipeline.stage().weights(), [](const at::Tensor& t) { return kernels::zeros(t.sizes()); });
      Trainer trainer(rank->pipeline.stage(), rank->optimizer, options, {.pipeline = &rank->pipeline});
      if (chooses(options)) {
        EXPECT_THROW(trainer.accumulate(samples_, part), std::logic_error);
        return std::nullopt;
      }
      const UpdateStats stats = trainer.accumulate(samples_, part);
      return Found{stats, rank->pipeline.gathered(part)};
    };
  });
}

}  // namespace
}  // namespace tandem
