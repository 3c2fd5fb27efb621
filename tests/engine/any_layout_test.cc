// A checkpoint or a copy in memory made at one layout is the state at every other, bit for bit; each rank reads its
// part of the files alone.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "checkpoint/scratch_folder.h"
#include "engine/engine.h"
#include "engine/team.h"
#include "parallel/communicator_local.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

const std::vector<Layout> kTeamLayouts = {
    {.dp_shard = 2},
    {.dp_shard = 4},
    {.dp_replicate = 2, .dp_shard = 2},
    {.tp = 2},
    {.tp = 4},
    {.pp = 2},
    {.pp = 4},
    {.dp_shard = 2, .tp = 2},
    {.cp = 2},
    {.pp = 2, .tp = 2},
    {.pp = 2, .dp_shard = 2},
};

// A Qwen3 with a tied embedding.
ModelConfig small_policy(const fs::path& folder, int64_t vocab = 640, int64_t width = 32, int64_t inner = 144) {
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": {}, "hidden_size": {},
          "intermediate_size": {}, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
          "head_dim": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
          "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false}})",
      vocab, width, inner);
  return load_model_config(folder);
}

EngineOptions small_options(const fs::path& model) {
  EngineOptions o;
  o.model_path = model;
  o.max_model_len = 64;
  o.kv_cache_bytes = 8 << 20;
  o.sampling.max_tokens = 8;
  o.sampling.seed = 5;
  o.validation_sampling = o.sampling;
  o.num_samples = 2;
  o.trainer.mini_batch_samples = 8;
  o.optimizer.lr = 1e-3;
  return o;
}

void write_policy(const fs::path& folder, const ModelConfig& config) {
  DecoderWeights weights = empty_weights(config);
  init_random(weights, 8);
  save_weights(folder, config, weights, DType::kBF16);
}

void with_ranks(const Layout& layout, const EngineOptions& options,
                const std::function<void(Engine&, TrajectoryStore&)>& fn) {
  const int size = layout.world();
  auto orders = make_local_group(size), work = make_local_group(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      omp_set_num_threads(1);
      const auto store = std::make_shared<TrajectoryStore>();
      Engine engine(options, nullptr, store);
      engine.join_team(std::make_shared<Team>(std::move(orders[rank]), std::move(work[rank]), layout));
      rank == 0 ? fn(engine, *store) : engine.follow();
    });
  for (std::thread& rank : ranks) rank.join();
}

RolloutBatch learnt_from(Engine& engine) {
  auto prompt = std::make_shared<Prompt>();
  prompt->id = 3;
  for (TokenId t = 0; t < 11; ++t) prompt->token_ids.push_back(t * 7 % 640);
  RolloutBatch batch = engine.generate({prompt});
  for (size_t i = 0; i < batch.size(); ++i) batch[i].advantage = i % 2 == 0 ? 0.5 : -0.5;
  return batch;
}

bool same_bits(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  bool same = x.size() == y.size() && !x.empty();
  for (size_t i = 0; same && i < x.size(); ++i)
    same = x[i].tensor.nbytes() == y[i].tensor.nbytes() &&
           std::memcmp(x[i].tensor.data_ptr(), y[i].tensor.data_ptr(), x[i].tensor.nbytes()) == 0;
  return same;
}

void expect_same(const ModelStateCopy& found, const ModelStateCopy& wanted) {
  EXPECT_TRUE(same_bits(found.weights, wanted.weights)) << "weights";
  EXPECT_TRUE(same_bits(found.exp_avg, wanted.exp_avg)) << "first moments";
  EXPECT_TRUE(same_bits(found.exp_avg_sq, wanted.exp_avg_sq)) << "second moments";
  EXPECT_EQ(found.optimizer_steps, wanted.optimizer_steps);
  EXPECT_EQ(found.version, wanted.version);
}

TEST(AnyLayout, ReadsWhatEveryOtherSaved) {
  const ScratchFolder folder;
  const fs::path model = folder / "model";
  write_policy(model, small_policy(model));
  const EngineOptions options = small_options(model);
  Engine alone(options, nullptr, std::make_shared<TrajectoryStore>());
  alone.update_policy(learnt_from(alone));
  ModelStateCopy wanted;
  alone.copy_state(wanted);
  alone.save(folder / "single");
  EngineOptions lazy = options;
  lazy.read_on_joining = true;
  std::vector<fs::path> saved{folder / "single"};
  for (const Layout& layout : kTeamLayouts)
    with_ranks(layout, lazy, [&](Engine& leader, TrajectoryStore&) {
      leader.load(folder / "single");
      saved.push_back(folder / layout_name(layout));
      leader.save(saved.back());
      EXPECT_TRUE(fs::exists(saved.back() / "actor/optim_world_size_2_rank_1.safetensors") ||
                  fs::exists(saved.back() / "actor/optim_world_size_4_rank_3.safetensors"));
    });
  for (const Layout& layout : kTeamLayouts)
    with_ranks(layout, lazy, [&](Engine& leader, TrajectoryStore&) {
      for (const fs::path& from : saved) {
        SCOPED_TRACE(from.filename().string() + " read as " + layout_name(layout));
        leader.load(from);
        ModelStateCopy found;
        leader.copy_state(found);
        expect_same(found, wanted);
      }
    });
  for (const fs::path& from : saved) {
    SCOPED_TRACE(from.filename().string() + " read by one rank");
    Engine other(options, nullptr, std::make_shared<TrajectoryStore>());
    other.load(from);
    ModelStateCopy found;
    other.copy_state(found);
    expect_same(found, wanted);
  }
}

// The copy is the leader's, whatever becomes of the ranks that filled it in; other ranks than those restore it, and go
// on as those would have.
TEST(AnyLayout, RestoresWhatEveryOtherKeptInMemory) {
  const ScratchFolder folder;
  write_policy(folder / "model", small_policy(folder / "model"));
  EngineOptions options = small_options(folder / "model");
  options.read_on_joining = true;
  ModelStateCopy kept, after;
  with_ranks({.dp_shard = 2}, options, [&](Engine& leader, TrajectoryStore&) {
    leader.update_policy(learnt_from(leader));
    leader.copy_state(kept);
    leader.update_policy(learnt_from(leader));
    leader.copy_state(after);
  });
  for (const Layout& layout : kTeamLayouts)
    with_ranks(layout, options, [&](Engine& leader, TrajectoryStore&) {
      SCOPED_TRACE(layout_name(layout));
      leader.update_policy(learnt_from(leader));  // of which nothing may stay
      leader.restore(kept);
      ModelStateCopy found;
      leader.copy_state(found);
      expect_same(found, kept);
      if (layout != Layout{.dp_shard = 2}) return;
      leader.update_policy(learnt_from(leader));
      leader.copy_state(found);
      expect_same(found, after);
    });
  options.read_on_joining = false;
  Engine alone(options, nullptr, std::make_shared<TrajectoryStore>());
  alone.restore(kept);
  ModelStateCopy found;
  alone.copy_state(found);
  expect_same(found, kept);
}

// Fully sharded and tensor-parallel ranks read the model's file once between them.
TEST(LazyLoading, RanksReadTheFileOnce) {
  const ScratchFolder folder;
  const ModelConfig config = small_policy(folder / "model");
  write_policy(folder / "model", config);
  EngineOptions options = small_options(folder / "model");
  Engine alone(options, nullptr, std::make_shared<TrajectoryStore>());
  ModelStateCopy wanted;
  alone.copy_state(wanted);
  options.read_on_joining = true;
  const auto size = static_cast<double>(2 * num_parameters(config));  // bf16
  for (const Layout& layout :
       {Layout{.dp_shard = 2}, Layout{.dp_shard = 4}, Layout{.tp = 2}, Layout{.tp = 4}, Layout{.dp_shard = 2, .tp = 2}})
    with_ranks(layout, options, [&](Engine& leader, TrajectoryStore&) {
      SCOPED_TRACE(layout_name(layout));
      const auto all = static_cast<double>(leader.loading().all_bytes);
      EXPECT_GE(all, size);
      EXPECT_LE(all, 1.05 * size);
      EXPECT_LE(static_cast<double>(leader.loading().own_bytes), 0.75 * size);
      ModelStateCopy found;
      leader.copy_state(found);
      EXPECT_TRUE(same_bits(found.weights, wanted.weights));
    });
}

int64_t anonymous_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  int64_t kilobytes = -1;
  while (rollup >> word)
    if (word == "Anonymous:") rollup >> kilobytes;
  return kilobytes * 1024;
}

// No rank has the whole model before it generates: together they hold it once.
TEST(LazyLoading, RanksHoldTheirPartsAlone) {
  const ScratchFolder folder;
  const ModelConfig config = small_policy(folder / "model", 8192, 256, 1024);
  {
    const DecoderWeights weights = empty_weights(config);  // random ones of this size take seconds
    for (const NamedTensor& parameter : parameters(weights)) std::ranges::fill(values(parameter.tensor), 0.01f);
    save_weights(folder / "model", config, weights, DType::kBF16);
  }
  EngineOptions options = small_options(folder / "model");
  const auto whole = static_cast<int64_t>(4 * num_parameters(config));
  ASSERT_GT(whole, 20 << 20);
  for (const Layout& layout : {Layout{.dp_shard = 4}, Layout{.tp = 4}})
    for (const bool lazy : {true, false}) {
      options.read_on_joining = lazy;
      const int64_t before = anonymous_bytes();
      with_ranks(layout, options, [&](Engine&, TrajectoryStore&) {
        const int64_t more = anonymous_bytes() - before;
        if (lazy) {
          EXPECT_LT(more, 3 * whole / 2) << layout_name(layout);
        } else if (layout.tp == 1) {
          EXPECT_GT(more, 3 * whole) << "this test cannot see what ranks hold";
        }
      });
    }
}

}  // namespace
}  // namespace tandem
