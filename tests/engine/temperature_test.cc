// SAMP-1: rollout, training, the old log-probs of a pass of their own and the reference all work at the temperature
// sampled with. After 's' the logits of ids 0, 1 and 2 are 2, 1 and 0.
#include <gtest/gtest.h>

#include "checkpoint/scratch_folder.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "support/bigram.h"

namespace tandem {
namespace {

struct Temperature {
  double value;
  double logprobs[3];  // log softmax((2, 1, 0) / T)
  double entropy;
};
// Entropy is -sum p log p: at T = 0.6 the probabilities are 0.816627, 0.154241 and 0.029132, at 1 they are 0.665241,
// 0.244728 and 0.090031, at 2 0.506480, 0.307196 and 0.186324.
constexpr Temperature kCases[] = {{0.6, {-0.202573, -1.869240, -3.535906}, 0.556749},
                                  {1.0, {-0.407606, -1.407606, -2.407606}, 0.832396},
                                  {2.0, {-0.680270, -1.180270, -1.680270}, 1.020192}};

void write_model(const std::filesystem::path& folder, const NextLogits& after_s) {
  BigramTable table;
  table.rows['s'] = after_s;
  write_bigram_model(folder, table);
}

class AtTemperature : public testing::TestWithParam<Temperature> {
 protected:
  AtTemperature() { write_model(folder_.path(), {{0, 2.F}, {1, 1.F}, {2, 0.F}}); }

  EngineOptions options() const {
    EngineOptions options;
    options.model_path = folder_.path();
    options.max_model_len = 32, options.kv_cache_bytes = 8 << 20;
    options.sampling.max_tokens = 1, options.sampling.temperature = GetParam().value;
    options.validation_sampling = options.sampling;
    options.num_samples = 64;
    options.trainer.mini_batch_samples = 64;
    options.trainer.entropy_coeff = 1e-6;
    options.optimizer.lr = 0;
    return options;
  }
  std::vector<PromptPtr> prompts() const {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = 1;
    prompt->token_ids = {'s'};
    return {prompt};
  }
  double expected(TokenId id) const { return GetParam().logprobs[id]; }

  ScratchFolder folder_;
  std::shared_ptr<TrajectoryStore> store_ = std::make_shared<TrajectoryStore>();
};

TEST_P(AtTemperature, RolloutAndUpdateAgree) {
  Engine engine(options(), nullptr, store_);
  RolloutBatch batch = engine.generate(prompts());
  double entropy = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const TrajectoryPtr t = store_->get(batch[i].handle);
    EXPECT_NEAR(t->rollout_logprobs[0], expected(t->response_ids[0]), 2e-6);
    const std::vector<PackItem> item = {{t->prompt->token_ids, t->response_ids}};
    EXPECT_EQ(packed_logprobs(engine.decoder(), item, std::vector{t->temperature}, 64)[0], t->rollout_logprobs);
    batch[i].advantage = i % 2 == 0 ? 1 : -0.5;
  }
  for (const double logprob : GetParam().logprobs) entropy -= std::exp(logprob) * logprob;
  EXPECT_NEAR(entropy, GetParam().entropy, 3e-6);
  const Metrics metrics = engine.update_policy(batch);
  EXPECT_EQ(metrics.get("actor/ppo_kl"), 0.0);  // every ratio is 1
  EXPECT_NEAR(metrics.get("actor/pg_loss").value(), -0.25, 1e-9);
  EXPECT_NEAR(metrics.get("actor/entropy_loss").value(), GetParam().entropy, 3e-6);
}

// Without exactness the old log-probs are computed anew: the same.
TEST_P(AtTemperature, RecomputedLogProbsAgree) {
  EngineOptions fast = options();
  fast.exact = false;
  fast.correction = parse_rollout_correction("token", "2.0", false, "", "");
  Engine engine(fast, nullptr, store_);
  for (const Sample& sample : engine.correct_rollout(engine.generate(prompts())).samples) {
    const TokenRecord record = store_->record(sample.handle);
    EXPECT_NEAR(record.old_logprobs[0], expected(store_->get(sample.handle)->response_ids[0]), 2e-6);
    EXPECT_NEAR(record.importance_weights[0], 1, 1e-6);  // with T forgotten 0.8146, 1.5867 or 3.0904 at T = 0.6
  }
}

// A reference whose logits are 0, 1 and 2 gives the same log-probs to the ids in turn.
TEST_P(AtTemperature, TheReferenceTakesTheSame) {
  const ScratchFolder turned;
  write_model(turned.path(), {{0, 0.F}, {1, 1.F}, {2, 2.F}});
  Engine engine(options(), nullptr, store_);
  ReferenceOptions reference;
  reference.model_path = turned.path(), reference.max_model_len = 32;
  reference.kl_type = parse_kl_type("k1");
  for (const Sample& sample : Reference(reference, store_).compute_logprobs(engine.generate(prompts()))) {
    const TokenId id = store_->get(sample.handle)->response_ids[0];
    EXPECT_NEAR(store_->record(sample.handle).ref_logprobs[0], expected(2 - id), 2e-6);
    EXPECT_NEAR(sample.kl, expected(id) - expected(2 - id), 4e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Samp1, AtTemperature, testing::ValuesIn(kCases), [](const auto& param) {
  return "T" + std::to_string(static_cast<int>(10 * param.param.value));
});

}  // namespace
}  // namespace tandem
