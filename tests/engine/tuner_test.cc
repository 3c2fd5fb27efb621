// Supervised fine-tuning and preference training of whole models: losses against transformers in float64, resuming,
// learning what can be learnt, and the reward model that comes of it.
#include "engine/tuner.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/scratch_folder.h"
#include "engine/reward_model.h"
#include "model/fixtures.h"

namespace tandem {
namespace {

TrajectoryPtr sample(const PromptPtr& prompt, Tokens response, std::vector<uint8_t> mask = {}) {
  auto made = std::make_shared<Trajectory>();
  made->prompt = prompt;
  made->response_ids = std::move(response);
  made->response_mask = std::move(mask);
  return made;
}

PromptPtr prompt_of(Tokens ids) {
  auto prompt = std::make_shared<Prompt>();
  prompt->token_ids = std::move(ids);
  return prompt;
}

TunerOptions options_for(const std::string& model) {
  TunerOptions options;
  options.model_path = model_folder(model);
  options.max_length = 64;
  options.batching.max_micro_tokens = 40;
  options.optimizer.lr = 3e-3;
  return options;
}

// Each golden sequence with its first third as prompt, every fourth token of the rest not learnt.
struct Golden {
  TuningBatch batch;
  double loss = 0;  // the mean of −log p over the tokens that are
  double tokens = 0;
};
Golden golden(const std::string& model) {
  Golden out;
  const auto file = read_json(model_folder(model) / "golden.json");
  for (const auto& sequence : file["sequences"]) {
    const auto tokens = sequence["tokens"].get<Tokens>();
    if (tokens.size() < 2) continue;
    const auto begin = static_cast<std::ptrdiff_t>(std::max<size_t>(1, tokens.size() / 3));
    Tokens response(tokens.begin() + begin, tokens.end());
    std::vector<uint8_t> mask;
    for (size_t t = 0; t < response.size(); ++t) {
      mask.push_back(t % 4 != 3);
      if (!mask.back()) continue;
      out.loss -= sequence["logprobs"][begin - 1 + t].get<double>();
      ++out.tokens;
    }
    out.batch.push_back(sample(prompt_of({tokens.begin(), tokens.begin() + begin}), response, mask));
  }
  out.loss /= out.tokens;
  return out;
}

class Supervised : public testing::TestWithParam<std::string> {};

TEST_P(Supervised, TheLossIsTheReferences) {
  const Golden wanted = golden(GetParam());
  const auto tuner = make_supervised_tuner(options_for(GetParam()));
  EXPECT_NEAR(*tuner->evaluate(wanted.batch).get("val/loss"), wanted.loss, 2e-5);
  const Metrics first = tuner->update(wanted.batch);
  EXPECT_NEAR(*first.get("train/loss"), wanted.loss, 2e-5);
  EXPECT_EQ(first.get("train/global_tokens"), wanted.tokens);
  for (int i = 0; i < 20; ++i) tuner->update(wanted.batch);
  EXPECT_LT(*tuner->evaluate(wanted.batch).get("val/loss"), wanted.loss - 0.5);
}

// The gradient by finite differences: a plain step of the learning rate along it lowers the loss by rate · norm².
TEST_P(Supervised, TheLossFallsByTheSquareOfTheGradient) {
  const Golden at = golden(GetParam());
  TunerOptions options = options_for(GetParam());
  const auto before = make_supervised_tuner(options);
  const double norm = *before->update(at.batch).get("train/grad_norm");
  // Adam's first step is lr · g / (|g| + eps): with a great eps it is lr / eps · g.
  options.optimizer.eps = 1e3, options.optimizer.weight_decay = 0, options.optimizer.clip_grad = 0;
  const double rate = 2e-3 / norm;
  options.optimizer.lr = rate * options.optimizer.eps;
  const auto moved = make_supervised_tuner(options);
  const double loss = *moved->update(at.batch).get("train/loss");
  EXPECT_NEAR(loss - *moved->evaluate(at.batch).get("val/loss"), rate * norm * norm, 0.03 * rate * norm * norm);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Supervised, testing::ValuesIn(kTinyModels), [](const auto& p) { return p.param; });

bool same_weights(const Tuner& a, const Tuner& b) {
  const auto x = parameters(a.decoder().weights()), y = parameters(b.decoder().weights());
  for (size_t i = 0; i < x.size(); ++i)
    if (!same_bits(values(x[i].tensor), values(y[i].tensor))) return false;
  return x.size() == y.size();
}

// A reply is better when it holds token 7 where the other one holds token 9; all else is random.
TuningBatch pairs(size_t count, uint64_t seed) {
  Philox random(seed);
  const auto token = [&] { return static_cast<int32_t>(10 + random.below(80)); };
  TuningBatch all;
  for (size_t i = 0; i < count; ++i) {
    Tokens prompt(3 + random.below(10)), reply(3 + random.below(10));
    for (int32_t& id : prompt) id = token();
    for (int32_t& id : reply) id = token();
    const size_t at = random.below(reply.size());
    const PromptPtr shared = prompt_of(prompt);
    for (const int32_t id : {7, 9}) {
      reply[at] = id;
      all.push_back(sample(shared, reply));
    }
  }
  return all;
}

TEST(Preference, LearnsASeparableSet) {
  const auto tuner = make_preference_tuner(options_for("qwen3"));
  const TuningBatch held_out = pairs(100, 99);
  EXPECT_LT(*tuner->evaluate(held_out).get("val/accuracy"), 0.8);
  for (uint64_t step = 0; step < 40; ++step) tuner->update(pairs(16, step));
  EXPECT_GE(*tuner->evaluate(held_out).get("val/accuracy"), 0.95);
  EXPECT_LT(*tuner->evaluate(held_out).get("val/loss"), 0.3);

  const ScratchFolder folder;
  tuner->save(folder.path());
  const RewardModel model(folder / "huggingface", at::kCPU, 100);
  const std::vector<float> scores = model.score(held_out);
  double right = 0;
  for (size_t i = 0; i < scores.size(); i += 2) right += scores[i] > scores[i + 1] ? 1 : 0;
  EXPECT_EQ(right / 100, *tuner->evaluate(held_out).get("val/accuracy"));
  EXPECT_EQ(model.score({held_out[1]})[0], scores[1]);
}

TEST(Preference, APolicyIsNoRewardModel) {
  EXPECT_THROW(RewardModel(model_folder("qwen3"), at::kCPU, 100), ConfigError);
}

TEST(Tuning, ResumesToTheSameBits) {
  for (const auto& make : {make_supervised_tuner, make_preference_tuner}) {
    const auto whole = make(options_for("llama_tied")), first = make(options_for("llama_tied"));
    for (uint64_t step = 0; step < 4; ++step) whole->update(pairs(4, step));
    for (uint64_t step = 0; step < 2; ++step) first->update(pairs(4, step));
    EXPECT_FALSE(same_weights(*whole, *first));
    const ScratchFolder folder;
    first->save(folder.path());
    const auto second = make(options_for("llama_tied"));
    second->load(folder.path());
    EXPECT_TRUE(same_weights(*second, *first));
    for (uint64_t step = 2; step < 4; ++step) second->update(pairs(4, step));
    EXPECT_TRUE(same_weights(*second, *whole));
  }
}

}  // namespace
}  // namespace tandem
