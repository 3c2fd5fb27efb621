#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "engine/reference.h"
#include "support/bigram.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

EngineOptions options_for(const fs::path& model) {
  EngineOptions options;
  options.model_path = model;
  options.max_model_len = 96;
  options.kv_cache_bytes = 8 << 20;
  options.sampling.max_tokens = 12;
  options.sampling.eos_ids = {2};
  options.sampling.seed = 11;
  options.validation_sampling = options.sampling;
  options.validation_sampling.temperature = 0;
  options.num_samples = 4;
  options.trainer.mini_batch_samples = 8;
  options.trainer.max_micro_tokens = 60;
  options.optimizer.lr = 1e-2;
  return options;
}

EngineOptions tiny() { return options_for(fs::path(TANDEM_TEST_DATA) / "models" / "qwen3_tied"); }

std::vector<PromptPtr> prompts(uint64_t first_id) {
  std::vector<PromptPtr> all;
  for (uint64_t i = 0; i < 5; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = first_id + i;
    for (uint64_t t = 0; t < 3 + 9 * i; ++t) prompt->token_ids.push_back(static_cast<TokenId>((t * 5 + i) % 96));
    all.push_back(prompt);
  }
  return all;
}

struct Role {
  explicit Role(const EngineOptions& options) : engine(options, nullptr, store) {}
  std::shared_ptr<TrajectoryStore> store = std::make_shared<TrajectoryStore>();
  Engine engine;

  // A step with a made-up reward: the share of even ids, against the group's mean.
  RolloutBatch step(uint64_t first_id) {
    RolloutBatch batch = engine.generate(prompts(first_id));
    for (size_t begin = 0; begin < batch.size(); begin += 4) {
      double mean = 0;
      for (size_t i = begin; i < begin + 4; ++i) {
        double even = 0;
        const auto& ids = store->get(batch[i].handle)->response_ids;
        for (const TokenId id : ids) even += id % 2 == 0 ? 1 : 0;
        batch[i].reward = even / static_cast<double>(ids.size());
        mean += batch[i].reward / 4;
      }
      for (size_t i = begin; i < begin + 4; ++i) batch[i].advantage = batch[i].reward - mean;
    }
    metrics = engine.update_policy(batch);
    return batch;
  }
  Metrics metrics;
};

bool same_weights(Engine& a, Engine& b) {
  const auto of_a = parameters(a.decoder().weights()), of_b = parameters(b.decoder().weights());
  bool same = of_a.size() == of_b.size();
  for (size_t i = 0; same && i < of_a.size(); ++i) {
    const auto x = values(of_a[i].tensor), y = values(of_b[i].tensor);
    same = x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
  }
  return same;
}

TEST(Engine, SameSeedSameBits) {
  Role a(tiny()), b(tiny());
  for (const uint64_t step : {0, 1}) a.step(10 * step), b.step(10 * step);
  EXPECT_TRUE(same_weights(a.engine, b.engine));
  EngineOptions other = tiny();
  other.sampling.seed = 12;
  Role c(other);
  for (const uint64_t step : {0, 1}) c.step(10 * step);
  EXPECT_FALSE(same_weights(a.engine, c.engine));
}

// The trainer starts from the very log-probs that were drawn: its ratio is 1 and nothing is clipped.
TEST(Engine, TheFirstMiniBatchIsOnPolicy) {
  EngineOptions options = tiny();
  options.trainer.mini_batch_samples = 20;
  Role role(options);
  role.step(0);
  EXPECT_EQ(role.metrics.get("actor/ppo_kl"), 0.0);
  EXPECT_EQ(role.metrics.get("actor/pg_clipfrac"), 0.0);
  EXPECT_EQ(role.metrics.get("actor/optimizer_steps"), 1.0);
  EXPECT_GT(role.metrics.get("actor/grad_norm").value_or(0), 0.0);
}

TEST(Engine, ASavedEngineGoesOnAsIfItHadNotStopped) {
  const ScratchFolder folder;
  Role whole(tiny());
  whole.step(0);
  whole.engine.save(folder.path());
  Role resumed(tiny());
  resumed.engine.load(folder.path());
  EXPECT_TRUE(same_weights(whole.engine, resumed.engine));
  EXPECT_EQ(resumed.engine.policy_version(), 1U);
  for (const uint64_t step : {1, 2}) {
    const RolloutBatch a = whole.step(10 * step), b = resumed.step(10 * step);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_EQ(whole.store->get(a[i].handle)->response_ids, resumed.store->get(b[i].handle)->response_ids);
    EXPECT_TRUE(same_weights(whole.engine, resumed.engine));
  }
  EXPECT_TRUE(fs::exists(folder / "actor" / "huggingface" / "config.json"));
  Role before(tiny());
  const fs::path fresh = folder / "fresh";
  before.engine.save(fresh);  // no optimizer yet
  Role from_fresh(tiny());
  from_fresh.engine.load(fresh);
  before.step(0), from_fresh.step(0);
  EXPECT_TRUE(same_weights(before.engine, from_fresh.engine));
}

// Without "extra" the moments still come back, with the number of steps that they have seen: under another learning
// rate's warm-up, or with empty moments, the next update would differ. The policy version, which is not asked for,
// starts anew.
TEST(Engine, MomentsAreRestoredWithoutTheRest) {
  const ScratchFolder folder;
  EngineOptions options = tiny();
  options.save = options.load = {.weights = true, .optimizer = true, .extra = false};
  Role whole(options);
  whole.step(0);
  whole.engine.save(folder.path());
  Role resumed(options);
  resumed.engine.load(folder.path());
  EXPECT_EQ(resumed.engine.policy_version(), 0U);
  const RolloutBatch batch = whole.step(10);
  RolloutBatch same = batch;  // the very samples: draws depend on the version
  for (Sample& sample : same) sample.handle = resumed.store->put(whole.store->get(sample.handle));
  resumed.engine.update_policy(same);
  EXPECT_TRUE(same_weights(whole.engine, resumed.engine));
}

// A step may draw several times (refills, a greedy baseline); validation is not part of it.
TEST(Engine, CountsAllThatAStepDrew) {
  Role role(tiny());
  role.engine.generate(prompts(0));
  const double once = role.engine.take_generation().get("rollout/computed_tokens").value();
  EXPECT_GT(once, 0);
  role.engine.generate(prompts(0));
  role.engine.generate(prompts(0));
  role.engine.generate_validation(prompts(0));
  EXPECT_EQ(role.engine.take_generation().get("rollout/computed_tokens"), 2 * once);
  EXPECT_EQ(role.engine.take_generation().get("rollout/computed_tokens"), 0.0);
}

TEST(Engine, ACheckpointOfAnotherModelIsRefused) {
  const ScratchFolder folder;
  Role role(tiny());
  role.step(0);
  role.engine.save(folder.path());
  Role other(options_for(fs::path(TANDEM_TEST_DATA) / "models" / "qwen3"));
  EXPECT_ANY_THROW(other.engine.load(folder.path()));
  fs::remove(folder / "actor" / "optim.safetensors");
  Role again(tiny());
  expect_names(error_of<IoError>([&] { again.engine.load(folder.path()); }), {"optim.safetensors"});
}

TEST(Engine, SamplesComePromptByPrompt) {
  Role role(tiny());
  const RolloutBatch batch = role.engine.generate(prompts(70));
  ASSERT_EQ(batch.size(), 20U);
  for (size_t i = 0; i < batch.size(); ++i) {
    const Trajectory& t = *role.store->get(batch[i].handle);
    EXPECT_EQ(batch[i].prompt_id, 70 + i / 4);
    EXPECT_EQ(t.prompt->id, 70 + i / 4);
    EXPECT_EQ(batch[i].sample_index, i % 4);
    EXPECT_EQ(t.sample_index, i % 4);
    EXPECT_EQ(batch[i].group, i / 4);
    EXPECT_EQ(batch[i].prompt_length, 3 + 9 * (i / 4));
    EXPECT_EQ(batch[i].response_length, t.response_ids.size());
  }
  EXPECT_TRUE(role.engine.generate({}).empty());
}

TEST(Engine, TheDrawDependsOnThePolicyVersionOnly) {
  EngineOptions options = tiny();
  options.optimizer.lr = 0;  // the weights stay, only the version moves
  options.optimizer.weight_decay = 0;
  Role role(options);
  const auto ids_of = [&](const RolloutBatch& batch) {
    std::vector<std::vector<TokenId>> all;
    for (const Sample& sample : batch) all.push_back(role.store->get(sample.handle)->response_ids);
    return all;
  };
  const auto first = ids_of(role.engine.generate(prompts(0))), again = ids_of(role.engine.generate(prompts(0)));
  EXPECT_EQ(first, again);
  const auto greedy = ids_of(role.engine.generate_validation(prompts(0)));
  role.step(0);
  EXPECT_EQ(role.engine.policy_version(), 1U);
  EXPECT_NE(ids_of(role.engine.generate(prompts(0))), first);
  EXPECT_EQ(ids_of(role.engine.generate_validation(prompts(0))), greedy);
}

// What is thrown between two passes ends the rollout there: a response cannot be scored, and the rest is of no use.
TEST(Engine, AnErrorBetweenPassesEndsTheRollout) {
  EngineOptions options = tiny();
  options.sampling.max_tokens = 40;
  options.sampling.eos_ids = {};
  size_t passes = 0, finished = 0;
  options.on_finished = [&](const TrajectoryPtr&) { ++finished; };
  options.between_passes = [&] {
    if (++passes == 7) throw DataError("no verdict");
  };
  Role role(options);
  expect_names(error_of<DataError>([&] { role.engine.generate(prompts(0)); }), {"no verdict"});
  EXPECT_EQ(passes, 7U);
  EXPECT_EQ(finished, 0U);
}

// TOK-2: the pad id is the end id, stands in the prompt too, and still every response token counts, its end included.
TEST(Engine, AnEndIdThatIsThePadIdIsLearnt) {
  const ScratchFolder folder;
  constexpr int32_t kEnd = kBigramImEnd;
  BigramTable table;
  table.rows['A'] = {{5, 0.F}}, table.rows[5] = {{6, 0.F}}, table.rows[6] = {{kEnd, 0.F}};
  table.rows['B'] = {{7, 0.F}}, table.rows[7] = {{kEnd, 0.F}};
  table.rows['C'] = {{8, 0.F}}, table.rows[8] = {{9, 0.F}}, table.rows[9] = {{4, 0.F}}, table.rows[4] = {{4, 0.F}};
  write_bigram_model(folder.path(), table);
  EngineOptions options = options_for(folder.path());
  options.sampling.max_tokens = 3;
  options.sampling.eos_ids = {kEnd};
  options.num_samples = 1;
  Role role(options);
  std::vector<PromptPtr> all;
  for (const TokenId last : {'A', 'B', 'C'}) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = static_cast<uint64_t>(last);
    prompt->token_ids = {65, kEnd, 66, kEnd, last};
    all.push_back(prompt);
  }
  RolloutBatch batch = role.engine.generate(all);
  const std::vector<std::vector<TokenId>> expected = {{5, 6, kEnd}, {7, kEnd}, {8, 9, 4}};
  const StopReason reasons[] = {StopReason::kEndOfText, StopReason::kEndOfText, StopReason::kLength};
  size_t trainable = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(role.store->get(batch[i].handle)->response_ids, expected[i]);
    EXPECT_EQ(batch[i].stop_reason, reasons[i]);
    EXPECT_EQ(batch[i].prompt_length, 5U);
    trainable += batch[i].response_length;
    batch[i].advantage = 1;
  }
  EXPECT_EQ(trainable, 8U);
  // Token mean of -A over all 8 tokens; a mask that drops the end ids would divide by 6 and count A twice, B once.
  batch[0].advantage = 3, batch[1].advantage = -2, batch[2].advantage = 1;
  EXPECT_NEAR(role.engine.update_policy(batch).get("actor/pg_loss").value(), -(3 * 3 - 2 * 2 + 3 * 1) / 8.0, 1e-9);
}

// The KL of a policy against itself is 0, bit for bit; after an update it is not.
TEST(Reference, ThePolicyItselfHasNoDivergence) {
  Role role(tiny());
  ReferenceOptions options;
  options.model_path = tiny().model_path;
  options.max_model_len = 96;
  options.max_micro_tokens = 50;
  options.kl_type = parse_kl_type("k3");
  Reference reference(options, role.store);
  for (const Sample& sample : reference.compute_logprobs(role.engine.generate(prompts(0)))) {
    EXPECT_EQ(sample.kl, 0.0);
    EXPECT_EQ(role.store->record(sample.handle).ref_logprobs, role.store->get(sample.handle)->rollout_logprobs);
  }
  role.step(0);
  double total = 0;
  for (const Sample& sample : reference.compute_logprobs(role.engine.generate(prompts(0)))) total += sample.kl;
  EXPECT_GT(total, 0.0);
}

TEST(Engine, RefusesWhatCannotFit) {
  EngineOptions options = tiny();
  options.max_model_len = 1000;
  expect_names(error_of<ConfigError>([&] { Role{options}; }), {"1000", "256", "max_prompt_length"});
  options = tiny();
  options.kv_cache_bytes = 1000;
  expect_names(error_of<ConfigError>([&] { Role{options}; }), {"kv_cache_memory_mb"});
  options = tiny();
  options.sampling.temperature = -1;
  expect_names(error_of<ConfigError>([&] { Role{options}; }), {"temperature"});
}

}  // namespace
}  // namespace tandem
