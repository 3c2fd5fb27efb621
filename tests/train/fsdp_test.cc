// Sharded training against one rank that computes the same micro-batches rank by rank: the same bits, whatever the
// layout.
#include "train/fsdp.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "parallel/communicator_local.h"
#include "train/head.h"
#include "train/random_policy.h"
#include "train/trainer.h"
#include "train/work_share.h"

namespace tandem {
namespace {

TrainerOptions trainer_options() {
  TrainerOptions options;
  options.mini_batch_samples = 8;  // the second one is smaller
  options.max_micro_tokens = 60;
  return options;
}

// One rank in the place of all: each rank's micro-batch from zero, added up in rank order, round by round.
class OneRankInTheirPlace {
 public:
  OneRankInTheirPlace(Decoder& decoder, Optimizer& optimizer, int ranks)
      : decoder_(decoder), optimizer_(optimizer), group_(make_local_group(ranks)) {}

  double update(const std::vector<TrainingSample>& samples) {
    const TrainerOptions options = trainer_options();
    double norm = 0;
    for (const auto& mini_batch : mini_batches(samples, options.mini_batch_samples)) {
      DecoderWeights total = zero_weights(decoder_.config());
      accumulate(mini_batch, options, total);
      norm = optimizer_.step(decoder_.weights(), total).grad_norm;
    }
    return norm;
  }

 private:
  static void add(const DecoderWeights& to, const DecoderWeights& from) {
    const auto a = parameters(to), b = parameters(from);
    for (size_t p = 0; p < a.size(); ++p)
      for (size_t i = 0; i < values(a[p].tensor).size(); ++i) values(a[p].tensor)[i] += values(b[p].tensor)[i];
  }

  void accumulate(std::span<const TrainingSample> samples, const TrainerOptions& options, DecoderWeights& total) {
    MiniBatchLoss loss(options, samples);
    std::vector<const TrainingSample*> all;
    for (const TrainingSample& sample : samples) all.push_back(&sample);
    std::vector<WorkShare> shares;
    for (const auto& rank : group_)
      shares.push_back(share_work(decoder_, all, options, *rank, activation_bytes_per_token(decoder_)));
    for (size_t round = 0; round < shares[0].most_micro_batches; ++round) {
      DecoderWeights sum;
      for (const WorkShare& share : shares) {
        DecoderWeights own = zero_weights(decoder_.config());
        micro_batch(samples, share.mine, round, options, loss, own);
        if (sum.layers.empty()) {
          sum = own;
        } else {
          add(sum, own);
        }
      }
      add(total, sum);
    }
  }

  void micro_batch(std::span<const TrainingSample> samples, const std::vector<size_t>& mine, size_t round,
                   const TrainerOptions& options, MiniBatchLoss& loss, DecoderWeights& gradients) {
    std::vector<const TrainingSample*> theirs;
    for (const size_t i : mine) theirs.push_back(&samples[i]);
    const auto ends = micro_batch_ends(activation_bytes_per_token(decoder_), theirs, options);
    if (round >= ends.size()) return;
    const size_t begin = round == 0 ? 0 : ends[round - 1], end = ends[round];
    std::vector<PackItem> items;
    for (size_t i = begin; i < end; ++i) items.push_back(pack_item(*theirs[i]));
    const PackedBatch batch = pack(items);
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

  Decoder& decoder_;
  Optimizer& optimizer_;
  std::vector<std::unique_ptr<Communicator>> group_;
};

bool same_bits(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  for (size_t p = 0; p < x.size(); ++p)
    if (std::memcmp(values(x[p].tensor).data(), values(y[p].tensor).data(), values(x[p].tensor).size_bytes()) != 0)
      return false;
  return x.size() == y.size();
}

OptimizerOptions optimizer_options() {
  OptimizerOptions options;
  options.lr = 1e-2, options.clip_grad = 0.05;  // small enough to clip: the norm's bits matter
  return options;
}

class Fsdp : public testing::TestWithParam<std::tuple<bool, Layout>> {};

TEST_P(Fsdp, TrainsAsOneRankInTheirPlaceBitForBit) {
  const auto [qwen, layout] = GetParam();
  const ModelConfig config = random_model(qwen);
  Decoder alone = random_decoder(config);
  Optimizer alone_optimizer(alone.weights(), optimizer_options());
  OneRankInTheirPlace reference(alone, alone_optimizer, layout.world());
  std::vector<double> norms;
  for (uint64_t step = 0; step < 2; ++step) norms.push_back(reference.update(random_samples(config, step)));

  run_ranks(layout.world(), [&](Communicator& world) {
    omp_set_num_threads(1);
    Decoder decoder = random_decoder(config);
    FullyShardedModel sharded(decoder, world, layout);
    Optimizer optimizer(sharded.shards(), optimizer_options());
    for (uint64_t step = 0; step < 2; ++step) {
      sharded.enter_training();
      Trainer trainer(decoder, optimizer, trainer_options(), {.sharded = &sharded});
      const UpdateStats stats = trainer.update(random_samples(config, step));
      EXPECT_EQ(stats.num_optimizer_steps, 2);
      EXPECT_GT(stats.imbalance, 0);
      sharded.enter_rollout();
      EXPECT_EQ(decoder.weights().layers.size(), 3U);
    }
    EXPECT_TRUE(same_bits(decoder.weights(), alone.weights())) << world.rank();
    EXPECT_TRUE(same_bits(sharded.gathered(optimizer.first_moment()), alone_optimizer.first_moment()));
    EXPECT_TRUE(same_bits(sharded.gathered(optimizer.second_moment()), alone_optimizer.second_moment()));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Fsdp,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Layout{.dp_shard = 2}, Layout{.dp_shard = 4},
                                                          Layout{.dp_replicate = 2, .dp_shard = 2},
                                                          Layout{.dp_replicate = 2}, Layout{.dp_shard = 3})),
                         [](const auto& info) {
                           std::string name = layout_name(std::get<1>(info.param));
                           return (std::get<0>(info.param) ? "qwen3_" : "llama_") + name;
                         });

class FsdpRoutes : public testing::TestWithParam<std::tuple<Route, Layout>> {};

// Two nodes of two ranks: every route, asked for as a whole or beside others, trains to the same bits.
TEST_P(FsdpRoutes, TrainAsOneRankInTheirPlaceBitForBit) {
  const auto [route, layout] = GetParam();
  const ModelConfig config = random_model(true);
  Decoder alone = random_decoder(config);
  Optimizer alone_optimizer(alone.weights(), optimizer_options());
  OneRankInTheirPlace reference(alone, alone_optimizer, layout.world());
  reference.update(random_samples(config, 0));

  const std::optional<Route> mlp = route == Route::kTree ? Route::kRing : Route::kTree;
  for (const ComponentRoutes& asked : {ComponentRoutes{route, route, route}, ComponentRoutes{route, mlp, std::nullopt}})
    run_ranks(layout.world(), [&](Communicator& world) {
      omp_set_num_threads(1);
      Decoder decoder = random_decoder(config);
      FullyShardedModel sharded(decoder, world, layout,
                                {.model = "actor", .network = {even_topology(4, 2), {}}, .asked = asked});
      Optimizer optimizer(sharded.shards(), optimizer_options());
      sharded.enter_training();
      Trainer(decoder, optimizer, trainer_options(), {.sharded = &sharded}).update(random_samples(config, 0));
      sharded.enter_rollout();
      EXPECT_TRUE(same_bits(decoder.weights(), alone.weights())) << world.rank();
      EXPECT_NE(sharded.route_table().find(name_of(route)), std::string::npos) << sharded.route_table();
      EXPECT_LE(sharded.route_traffic().largest_message, 8'000'000);
    });
}

INSTANTIATE_TEST_SUITE_P(Routes, FsdpRoutes,
                         testing::Combine(testing::ValuesIn(kRoutes),
                                          testing::Values(Layout{.dp_shard = 4},
                                                          Layout{.dp_replicate = 2, .dp_shard = 2})),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  layout_name(std::get<1>(info.param));
                         });

// Links between nodes on which each exchange takes a while, as long as `slow` is set.
class SlowCommunicator : public Communicator {
 public:
  SlowCommunicator(std::unique_ptr<Communicator> inner, const std::atomic<bool>& slow)
      : Communicator(inner->rank(), inner->size()), inner_(std::move(inner)), slow_(slow) {}
  std::unique_ptr<Communicator> make_part(std::span<const int> ranks) override {
    return std::make_unique<SlowCommunicator>(inner_->split(ranks), slow_);
  }

 protected:
  void transfer(std::string_view operation, std::span<const SendPart> sends,
                std::span<const ReceivePart> receives) override {
    if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    inner_->exchange(operation, sends, receives);
  }

 private:
  std::unique_ptr<Communicator> inner_;
  const std::atomic<bool>& slow_;
};

// A critic's gradients take the tree while traffic between nodes fills its steps, and go back when it has become
// little.
TEST(FsdpSwitch, FollowsTheMeasuredShareOfSteps) {
  ModelConfig config = random_model(false);
  config.value_head = true;
  std::atomic<bool> slow = true;
  testing::internal::CaptureStderr();
  run_ranks(2, [&](Communicator& plain) {
    SlowCommunicator world(plain.duplicate(), slow);
    Decoder decoder = random_decoder(config);
    FullyShardedModel critic(decoder, world, {.dp_shard = 2},
                             {.model = "critic",
                              .network = {even_topology(2, 1), {}},
                              .asked = {},
                              .gradient_switch = SwitchOptions{.share = 0.4, .back = 0.3, .steps = 3}});
    critic.enter_training();
    const auto step = [&](int compute_ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(compute_ms));
      barrier(plain, "start together");
      critic.idle_micro_batch();
      critic.step_done();
      return critic.gradients_take_tree();
    };
    EXPECT_TRUE(step(0));  // nothing but exchanges
    EXPECT_TRUE(step(0));
    slow = false;
    for (const bool tree : {true, true, false}) EXPECT_EQ(step(150), tree);
  });
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("gradients take the chunked tree"), std::string::npos) << log;
  EXPECT_NE(log.find("own routes again"), std::string::npos) << log;
}

// Every rank keeps its part only: the parts of all make up the model, and the pieces of a part are whole norm blocks.
TEST(FsdpParts, AreDisjointAndComplete) {
  const ModelConfig config = random_model(true);
  int64_t kept = 0;
  std::mutex mutex;
  run_ranks(4, [&](Communicator& world) {
    Decoder decoder = random_decoder(config);
    FullyShardedModel sharded(decoder, world, {.dp_shard = 4});
    const DecoderWeights whole = sharded.gathered(sharded.shards());
    EXPECT_TRUE(same_bits(whole, decoder.weights()));
    sharded.enter_training();
    EXPECT_FALSE(decoder.weights().layers[0].qkv.weight_NE.defined());
    const std::lock_guard lock(mutex);
    for (const auto& part : parameters(sharded.shards())) kept += part.tensor.numel();
  });
  EXPECT_EQ(kept, num_parameters(config));
}

// Bytes of a micro-batch: blocks are gathered once upwards and, but for the two that are still there, once downwards;
// gradients go out once.
TEST(FsdpTraffic, IsWhatTheSchemeNeeds) {
  ModelConfig config = random_model(false);
  config.num_hidden_layers = 4;
  int64_t received = 0;
  std::mutex mutex;
  run_ranks(2, [&](Communicator& world) {
    Decoder decoder = random_decoder(config);
    FullyShardedModel sharded(decoder, world, {.dp_shard = 2});
    sharded.enter_training();
    const Traffic before = sharded.traffic();
    sharded.idle_micro_batch();
    sharded.finish_gradients();
    const std::lock_guard lock(mutex);
    received += sharded.traffic().bytes_received - before.bytes_received;
  });
  const int64_t all = num_parameters(config);
  const int64_t blocks = all - 2 * config.vocab_size * config.hidden_size - config.hidden_size, block = blocks / 4;
  // Two ranks: together they receive what is gathered or reduced exactly once.
  EXPECT_EQ(received, 4 * (blocks + 2 * block + all));
}

}  // namespace
}  // namespace tandem
