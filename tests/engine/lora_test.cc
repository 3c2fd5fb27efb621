// A policy that trains adapters, through the engine: exactness, resuming, its reference, its files.
#include "model/lora.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "data/expect_error.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "engine/tuner.h"
#include "model/fixtures.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

EngineOptions options_for(const std::string& model) {
  EngineOptions options;
  options.model_path = model_folder(model);
  options.lora = {.rank = 4, .alpha = 8, .target_modules = {"all-linear"}, .seed = 3};
  options.max_model_len = 128;
  options.kv_cache_bytes = 8 << 20;
  options.scheduler.max_num_batched_tokens = 40;  // prompts come in pieces
  options.sampling.max_tokens = 60;
  options.sampling.eos_ids = {2};
  options.sampling.seed = 11;
  options.validation_sampling = options.sampling;
  options.num_samples = 4;
  options.trainer.mini_batch_samples = 8;
  options.trainer.max_micro_tokens = 130;
  options.optimizer.lr = 2e-2;
  return options;
}

// Prompts of 3 to 39 tokens: within, at and across blocks.
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

  void step(uint64_t first_id) {
    RolloutBatch batch = engine.generate(prompts(first_id));
    for (Sample& sample : batch) {
      const auto& ids = store->get(sample.handle)->response_ids;
      sample.advantage = static_cast<double>(std::ranges::count_if(ids, [](TokenId id) { return id % 2 == 0; })) /
                             static_cast<double>(ids.size()) -
                         0.5;
    }
    engine.update_policy(batch);
  }
  const DecoderWeights& weights() { return engine.decoder().weights(); }
};

bool same_bits(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  for (size_t i = 0; i < x.size() && i < y.size(); ++i)
    if (!tandem::same_bits(values(x[i].tensor), values(y[i].tensor))) return false;
  return x.size() == y.size();
}

std::vector<std::vector<float>> training_logprobs(Role& role, const RolloutBatch& batch, const Decoder& decoder) {
  std::vector<PackItem> items;
  for (const Sample& sample : batch) {
    const TrajectoryPtr t = role.store->get(sample.handle);
    items.push_back({t->prompt->token_ids, t->response_ids});
  }
  return packed_logprobs(decoder, items, std::vector<double>(items.size(), 1.0), 130);
}

class LoraEngine : public testing::TestWithParam<std::string> {};

// After two updates the adapters matter, and still every token's log-prob in rollout is that of the training forward:
// 20 ragged responses in one batch, cut differently in the two phases.
TEST_P(LoraEngine, SamplesThroughTheAdaptersBitForBit) {
  Role role(options_for(GetParam()));
  role.step(0), role.step(10);
  const RolloutBatch batch = role.engine.generate(prompts(20));
  const auto with = training_logprobs(role, batch, role.engine.decoder());
  const auto without = training_logprobs(role, batch, role.engine.decoder().base());
  size_t compared = 0, moved = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto& drawn = role.store->get(batch[i].handle)->rollout_logprobs;
    ASSERT_EQ(drawn.size(), with[i].size());
    for (size_t t = 0; t < drawn.size(); ++t, ++compared) {
      ASSERT_EQ(std::bit_cast<uint32_t>(drawn[t]), std::bit_cast<uint32_t>(with[i][t])) << i << " " << t;
      moved += std::abs(drawn[t] - without[i][t]) > 0.01F ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 300U);
  EXPECT_GT(moved, compared / 2);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraEngine, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

TEST(Lora, ASavedEngineGoesOnAsIfItHadNotStopped) {
  const ScratchFolder folder;
  const EngineOptions options = options_for("qwen2");
  Role whole(options);
  whole.step(0);
  whole.engine.save(folder.path());
  EXPECT_FALSE(fs::exists(folder / "actor" / "huggingface"));
  Role resumed(options);
  resumed.engine.load(folder.path());
  EXPECT_TRUE(same_bits(whole.weights(), resumed.weights()));
  for (const uint64_t step : {1, 2}) whole.step(10 * step), resumed.step(10 * step);
  EXPECT_TRUE(same_bits(whole.weights(), resumed.weights()));
  EXPECT_TRUE(same_bits(without_adapters(whole.weights()), make_decoder(options.model_path)->weights()));
}

TEST(Lora, StartsFromASavedAdapter) {
  const ScratchFolder folder;
  Role role(options_for("qwen2"));
  role.step(0);
  role.engine.save(folder.path());
  EngineOptions options = options_for("qwen2");
  options.lora = {.adapter = find_adapter(folder.path())};
  Role next(options);
  EXPECT_TRUE(same_bits(role.weights(), next.weights()));
  EXPECT_EQ(next.engine.policy_version(), 0U);
}

TEST(Lora, CheckpointsOfOtherKindsAreRefused) {
  const ScratchFolder folder;
  Role role(options_for("qwen2"));
  role.step(0);
  role.engine.save(folder / "adapters");
  EngineOptions other = options_for("qwen2");
  other.lora.rank = 8;
  expect_error<IoError>([&] { Role(other).engine.load(folder / "adapters"); }, {"lora_rank"});
  other.lora.rank = 4, other.lora.alpha = 9;
  expect_error<IoError>([&] { Role(other).engine.load(folder / "adapters"); }, {"lora_alpha"});
  other.lora.alpha = 8, other.lora.exclude_modules = {"o_proj"};
  expect_error<IoError>([&] { Role(other).engine.load(folder / "adapters"); }, {"target_modules"});
  other.lora = {};
  Role full(other);
  expect_error<IoError>([&] { full.engine.load(folder / "adapters"); }, {"lora_adapter", "lora_rank"});
  full.step(0);
  full.engine.save(folder / "whole");
  expect_error<IoError>([&] { role.engine.load(folder / "whole"); }, {"lora_adapter", "lora_rank"});
}

// save_contents=hf_model: the merged model beside the adapter.
TEST(Lora, TheMergedModelCanBeSavedToo) {
  const ScratchFolder folder;
  EngineOptions options = options_for("llama_bias");
  options.save.merged = true;
  options.optimizer.lr = 2e-3;
  Role role(options);
  role.step(0);
  role.engine.save(folder.path());
  const auto merged = make_decoder(folder / "actor" / "huggingface");
  const RolloutBatch batch = role.engine.generate(prompts(10));
  const auto mine = training_logprobs(role, batch, role.engine.decoder()),
             its = training_logprobs(role, batch, *merged);
  for (size_t i = 0; i < mine.size(); ++i)
    for (size_t t = 0; t < mine[i].size(); ++t) EXPECT_NEAR(mine[i][t], its[i][t], 2e-5);
}

// The reference is the model below the adapters, in the same memory: no divergence at first, bit for bit; after updates
// its log-probs are still those of the model's folder.
TEST(Lora, TheReferenceIsTheModelWithoutThem) {
  Role role(options_for("qwen3"));
  ReferenceOptions options;
  options.max_model_len = 128;
  options.max_micro_tokens = 130;
  options.kl_type = parse_kl_type("k3");
  auto base = std::make_unique<Decoder>(role.engine.decoder().base());
  const auto below = parameters(without_adapters(role.weights())), its = parameters(base->weights());
  ASSERT_EQ(below.size(), its.size());
  for (size_t i = 0; i < its.size(); ++i) EXPECT_EQ(its[i].tensor.data_ptr(), below[i].tensor.data_ptr());
  Reference reference(options, std::move(base), role.store);
  for (const Sample& sample : reference.compute_logprobs(role.engine.generate(prompts(0)))) EXPECT_EQ(sample.kl, 0.0);
  role.step(0), role.step(10);
  const RolloutBatch batch = role.engine.generate(prompts(20));
  double total = 0;
  for (const Sample& sample : reference.compute_logprobs(batch)) total += sample.kl;
  EXPECT_GT(total, 0.0);
  const auto wanted = training_logprobs(role, batch, *make_decoder(model_folder("qwen3")));
  for (size_t i = 0; i < batch.size(); ++i) EXPECT_EQ(role.store->record(batch[i].handle).ref_logprobs, wanted[i]);
}

// Supervised fine-tuning of adapters learns, resumes and leaves the model alone.
TEST(Lora, FineTunesAdaptersAlone) {
  const ScratchFolder folder;
  TunerOptions options;
  options.model_path = model_folder("llama_tied");
  options.lora = {.rank = 8, .alpha = 16, .target_modules = {"all-linear"}};
  options.max_length = 64;
  options.optimizer.lr = 1e-2;
  TuningBatch batch;
  for (const PromptPtr& prompt : prompts(0)) {
    auto sample = std::make_shared<Trajectory>();
    sample->prompt = prompt;
    sample->response_ids = {7, static_cast<TokenId>(prompt->token_ids.size()), 9, 2};
    batch.push_back(sample);
  }
  const auto tuner = make_supervised_tuner(options);
  const double before = *tuner->evaluate(batch).get("val/loss");
  for (int i = 0; i < 25; ++i) tuner->update(batch);
  EXPECT_LT(*tuner->evaluate(batch).get("val/loss"), before - 1);
  tuner->save(folder.path());
  EXPECT_EQ(find_adapter(folder.path()), folder / "lora_adapter");
  const auto again = make_supervised_tuner(options);
  again->load(folder.path());
  tuner->update(batch), again->update(batch);
  EXPECT_TRUE(same_bits(tuner->decoder().weights(), again->decoder().weights()));
  EXPECT_TRUE(same_bits(without_adapters(again->decoder().weights()), make_decoder(options.model_path)->weights()));
}

}  // namespace
}  // namespace tandem
