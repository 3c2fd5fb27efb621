// Several ranks as one engine: the program sees the leader only.
#include "engine/team.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/file.h"
#include "checkpoint/scratch_folder.h"
#include "engine/engine.h"
#include "engine/with_ranks.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

EngineOptions options() {
  EngineOptions o;
  o.model_path = fs::path(TANDEM_TEST_DATA) / "models" / "qwen3_tied";
  o.max_model_len = 96;
  o.kv_cache_bytes = 8 << 20;
  o.sampling.max_tokens = 12;
  o.sampling.eos_ids = {2};
  o.sampling.seed = 11;
  o.validation_sampling = o.sampling;
  o.validation_sampling.temperature = 0;
  o.num_samples = 4;
  o.trainer.mini_batch_samples = 20;
  o.trainer.max_micro_tokens = 60;
  o.optimizer.lr = 1e-3;
  return o;
}

std::vector<PromptPtr> prompts() {
  std::vector<PromptPtr> all;
  for (uint64_t i = 0; i < 5; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = 40 + i;
    for (uint64_t t = 0; t < 3 + 9 * i; ++t) prompt->token_ids.push_back(static_cast<TokenId>((t * 5 + i) % 96));
    all.push_back(prompt);
  }
  return all;
}

// fn(leader, its store); the other ranks follow. `drawn`: the leader's.
void with_team(const Layout& layout, const std::function<void(Engine&, TrajectoryStore&)>& fn,
               const DrawnSamples& drawn = {}) {
  with_ranks(
      layout,
      [&](int rank, const std::shared_ptr<TrajectoryStore>& store) {
        EngineOptions mine = options();
        if (rank == 0) mine.drawn = drawn;
        return std::make_unique<Engine>(mine, nullptr, store);
      },
      fn);
}

std::vector<std::vector<TokenId>> responses(const RolloutBatch& batch, const TrajectoryStore& store) {
  std::vector<std::vector<TokenId>> all;
  for (const Sample& sample : batch) all.push_back(store.get(sample.handle)->response_ids);
  return all;
}

RolloutBatch rewarded(RolloutBatch batch) {
  for (size_t i = 0; i < batch.size(); ++i) batch[i].advantage = i % 2 == 0 ? 0.5 : -0.5;
  return batch;
}

// The state that a checkpoint holds, as files of one rank: those of several depend on their layout.
void expect_same_state(const fs::path& a, const fs::path& b) {
  const ScratchFolder folder;
  std::vector<std::string> states;
  for (const fs::path& from : {a, b}) {
    Engine alone(options(), nullptr, std::make_shared<TrajectoryStore>());
    alone.load(from);
    const fs::path to = folder / std::to_string(states.size());
    alone.save(to);
    states.push_back(read_file(to / "actor/huggingface/model.safetensors") + read_file(to / "actor/optim.safetensors") +
                     read_file(to / "actor/extra_state.json"));
  }
  EXPECT_EQ(states[0] == states[1], true) << a << " is another state than " << b;
}

TEST(Team, DrawsWhatOneRankDraws) {
  const auto store = std::make_shared<TrajectoryStore>();
  Engine alone(options(), nullptr, store);
  const auto drawn = responses(alone.generate(prompts()), *store);
  const auto greedy = responses(alone.generate_validation(prompts()), *store);
  for (const Layout& layout : {Layout{.dp_shard = 2}, Layout{.dp_replicate = 2, .dp_shard = 2}, Layout{.pp = 2}})
    with_team(layout, [&](Engine& leader, TrajectoryStore& its) {
      EXPECT_EQ(responses(leader.generate(prompts()), its), drawn);
      EXPECT_EQ(responses(leader.generate_validation(prompts()), its), greedy);
    });
}

TEST(Team, DrawsNoRanksFinishedSamplesAgain) {
  const auto store = std::make_shared<TrajectoryStore>();
  Engine alone(options(), nullptr, store);
  const RolloutBatch whole = alone.generate(prompts());
  const auto wanted = responses(whole, *store);
  // Two samples of each prompt are known, of one prompt all, of one none.
  const auto is_known = [](uint64_t prompt, uint32_t sample) {
    return prompt == 41 || (prompt != 43 && (sample + prompt) % 2 == 0);
  };
  std::map<std::pair<uint64_t, uint32_t>, TrajectoryPtr> known;
  for (const Sample& sample : whole)
    if (is_known(sample.prompt_id, sample.sample_index))
      known[{sample.prompt_id, sample.sample_index}] = store->get(sample.handle);
  ASSERT_EQ(known.size(), 10U);
  for (const Layout& layout : {Layout{.dp_shard = 2}, Layout{.dp_shard = 3}, Layout{.pp = 2}}) {
    std::vector<std::pair<uint64_t, uint32_t>> drawn;
    const DrawnSamples leaders{
        [&](bool, const PromptPtr& prompt, uint32_t sample, uint64_t) -> TrajectoryPtr {
          const auto found = known.find({prompt->id, sample});
          if (found == known.end()) return nullptr;
          Trajectory its = *found->second;
          its.prompt = prompt;  // as a journal gives it back
          return std::make_shared<Trajectory>(std::move(its));
        },
        [&](bool, const TrajectoryPtr& t) { drawn.emplace_back(t->prompt->id, t->sample_index); }};
    with_team(
        layout,
        [&](Engine& leader, TrajectoryStore& its) { EXPECT_EQ(responses(leader.generate(prompts()), its), wanted); },
        leaders);
    EXPECT_EQ(drawn.size(), 10U);
    for (const auto& [prompt, sample] : drawn) EXPECT_FALSE(is_known(prompt, sample)) << prompt << " " << sample;
  }
}

// All layouts of four ranks end with the same state, and their checkpoints go on in any other layout, bit for bit.
TEST(Team, ItsCheckpointsKnowNoLayout) {
  const ScratchFolder folder;
  const Layout layouts[] = {{.dp_shard = 4}, {.dp_replicate = 2, .dp_shard = 2}, {.dp_replicate = 4}};
  for (size_t i = 0; i < 3; ++i)
    with_team(layouts[i], [&](Engine& leader, TrajectoryStore&) {
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / std::to_string(i));
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / ("next" + std::to_string(i)));
    });
  for (const char* other : {"1", "2"}) expect_same_state(folder.path() / "0", folder.path() / other);
  for (size_t i = 0; i < 3; ++i)
    with_team(layouts[(i + 1) % 3], [&](Engine& leader, TrajectoryStore&) {
      leader.update_policy(rewarded(leader.generate(prompts())));  // of which nothing may stay
      leader.load(folder.path() / std::to_string(i));
      EXPECT_EQ(leader.policy_version(), 1U);
      leader.save(folder.path() / "again");
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / "after");
      expect_same_state(folder.path() / "again", folder.path() / "0");
      expect_same_state(folder.path() / "after", folder.path() / "next0");
    });
}

// A team's update is one rank's but for the order of sums.
TEST(Team, LearnsAsOneRankDoes) {
  const auto store = std::make_shared<TrajectoryStore>();
  Engine alone(options(), nullptr, store);
  const Metrics expected = alone.update_policy(rewarded(alone.generate(prompts())));
  for (const Layout& layout : {Layout{.dp_shard = 2}, Layout{.tp = 2}, Layout{.dp_shard = 2, .tp = 2}, Layout{.pp = 2}})
    with_team(layout, [&](Engine& leader, TrajectoryStore&) {
      const Metrics found = leader.update_policy(rewarded(leader.generate(prompts())));
      for (const char* name : {"actor/loss", "actor/grad_norm", "actor/pg_clipfrac"}) {
        const double wanted = expected.get(name).value();
        EXPECT_NEAR(found.get(name).value(), wanted, 1e-5 * std::abs(wanted) + 1e-6) << name << layout_name(layout);
      }
      EXPECT_EQ(found.get("actor/ppo_kl"), 0.0) << "the update starts from other log-probs than were drawn with";
      EXPECT_EQ(found.get("actor/optimizer_steps"), expected.get("actor/optimizer_steps"));
    });
}

// Tensor parallelism and pipelines too: their checkpoints are whole, and they go on from one exactly.
TEST(Team, AMegatronRunResumesBitForBit) {
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.dp_shard = 2, .tp = 2}, Layout{.pp = 2}}) {
    SCOPED_TRACE(layout_name(layout));
    const ScratchFolder folder;
    with_team(layout, [&](Engine& leader, TrajectoryStore&) {
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / "first");
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / "second");
    });
    with_team(layout, [&](Engine& leader, TrajectoryStore&) {
      leader.load(folder.path() / "first");
      leader.update_policy(rewarded(leader.generate(prompts())));
      leader.save(folder.path() / "resumed");
    });
    with_team({.dp_shard = 4}, [&](Engine& leader, TrajectoryStore&) {
      leader.load(folder.path() / "second");
      leader.save(folder.path() / "elsewhere");
    });
    expect_same_state(folder.path() / "second", folder.path() / "resumed");
    expect_same_state(folder.path() / "second", folder.path() / "elsewhere");
  }
}

}  // namespace
}  // namespace tandem
