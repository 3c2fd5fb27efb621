// Samples that are known need not be drawn, and those that are missing come out as if all were.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"

namespace tandem {
namespace {

using Name = std::tuple<bool, uint64_t, uint32_t>;  // greedy, prompt, sample

EngineOptions tiny() {
  EngineOptions options;
  options.model_path = std::filesystem::path(TANDEM_TEST_DATA) / "models" / "qwen3_tied";
  options.max_model_len = 96;
  options.kv_cache_bytes = 8 << 20;
  options.sampling.max_tokens = 12;
  options.sampling.eos_ids = {2};
  options.sampling.seed = 11;
  options.validation_sampling = options.sampling;
  options.num_samples = 4;
  return options;
}

std::vector<PromptPtr> prompts() {
  std::vector<PromptPtr> all;
  for (uint64_t i = 0; i < 3; ++i) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = i;
    for (uint64_t t = 0; t < 3 + 9 * i; ++t) prompt->token_ids.push_back(static_cast<TokenId>((t * 5 + i) % 96));
    all.push_back(prompt);
  }
  return all;
}

TEST(Recall, MissingSamplesComeOutAsBefore) {
  std::map<Name, TrajectoryPtr> known;
  EngineOptions options = tiny();
  options.drawn.record = [&](bool greedy, const TrajectoryPtr& t) {
    known[{greedy, t->prompt->id, t->sample_index}] = t;
  };
  const auto store = std::make_shared<TrajectoryStore>();
  Engine whole(options, nullptr, store);
  const auto all = prompts();
  const RolloutBatch wanted = whole.generate(all);
  whole.generate_greedy(all);
  whole.generate_validation(all);
  ASSERT_EQ(known.size(), 3U * 4 + 3);  // validation is not recorded

  for (const uint32_t lost : {0b0001U, 0b0110U, 0b1011U, 0b1111U, 0b0000U}) {
    std::vector<Name> drawn;
    options.drawn.record = [&](bool greedy, const TrajectoryPtr& t) {
      drawn.emplace_back(greedy, t->prompt->id, t->sample_index);
    };
    options.drawn.recall = [&](bool greedy, const PromptPtr& prompt, uint32_t sample, uint64_t version) {
      EXPECT_EQ(version, 0U);
      // The prompts lose different samples: each its own rotation.
      const uint32_t bit = (sample + static_cast<uint32_t>(prompt->id)) % 4;
      return (lost >> bit & 1) != 0 ? nullptr : known.at({greedy, prompt->id, sample});
    };
    Engine again(options, nullptr, store);
    const RolloutBatch batch = again.generate(all);
    EXPECT_EQ(drawn.size(), 3U * static_cast<uint32_t>(__builtin_popcount(lost)));
    ASSERT_EQ(batch.size(), wanted.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      const TrajectoryPtr a = store->get(batch[i].handle), b = store->get(wanted[i].handle);
      EXPECT_EQ(batch[i].sample_index, wanted[i].sample_index);
      EXPECT_EQ(batch[i].group, wanted[i].group);
      EXPECT_EQ(a->response_ids, b->response_ids);
      EXPECT_EQ(a->rollout_logprobs, b->rollout_logprobs);
      EXPECT_EQ(a->mean_entropy, b->mean_entropy);
    }
  }
}

}  // namespace
}  // namespace tandem
