// Whole steps of every program on a bigram model.
#include "programs/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "programs/tiny_run.h"

namespace tandem {
namespace {

EngineOptions learning(double lr = 3e-2) {
  EngineOptions options;
  options.optimizer.lr = lr, options.optimizer.weight_decay = 0;
  options.num_samples = 8;
  return options;
}

std::vector<float> weights_of(Decoder& decoder) {
  std::vector<float> all;
  for (const NamedTensor& parameter : parameters(decoder.weights())) {
    const auto part = values(parameter.tensor);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void expect_finite(const Metrics& metrics, const std::string& name) {
  for (const Metric& metric : metrics) EXPECT_TRUE(std::isfinite(metric.value)) << name << " " << metric.name;
}

TEST(Program, EveryEstimatorTakesAStepAndLearns) {
  for (const char* name : {"grpo", "grpo_passk", "gdpo", "rloo", "opo", "gpg", "reinforce_plus_plus_baseline",
                           "reinforce_plus_plus", "remax", "optimal_token_baseline"}) {
    ProgramOptions options;
    options.kl = {.enable = std::string_view(name) != "gdpo", .kl_coef = 0.01};
    const auto estimator = find_advantage_estimator(name);
    options.advantage.estimator = estimator.value_or(AdvantageEstimator::kGrpo);
    options.advantage.gdpo_keys = {"x", "length"};
    options.collect.greedy_baseline = std::string_view(name) == "remax";
    options.squared_probs = std::string_view(name) == "optimal_token_baseline";
    std::optional<TokenAdvantageOptions> tokens;
    if (!estimator) tokens.emplace().estimator = find_token_estimator(name).value();
    TinyRun run(options, learning(), tokens, false, 0.5);  // y is likelier at first
    const double before = run.probability_of_y();
    for (int step = 0; step < 4; ++step) {
      const StepResult result = run.step("A");
      expect_finite(result.metrics, name);
      EXPECT_EQ(result.batch.samples.size(), 32U) << name;
      run.store->clear();
    }
    EXPECT_LT(run.probability_of_y(), before) << name;
  }
}

TEST(Program, EveryLossTakesStepsAndLearns) {
  for (const PolicyLossKind& kind : policy_losses()) {
    ProgramOptions options;
    EngineOptions engine = learning();
    engine.trainer.policy = &kind;
    engine.trainer.epochs = 2;  // the second pass is off policy
    if (kind.aggregation) engine.trainer.aggregation = *kind.aggregation;
    TinyRun run(options, engine, {}, false, 0.5);
    const double before = run.probability_of_y();
    for (int step = 0; step < 3; ++step) {
      expect_finite(run.step("A").metrics, std::string(kind.name));
      run.store->clear();
    }
    EXPECT_LT(run.probability_of_y(), before) << kind.name;
  }
}

ProgramOptions ppo_options(int64_t warmup) {
  ProgramOptions options;
  options.kl = {.enable = true, .kl_coef = 0.01};
  options.critic_warmup = warmup;
  return options;
}

TEST(Ppo, TheCriticWarmsUpAloneAndThenThePolicyLearns) {
  TinyRun run(ppo_options(2), learning(), TokenAdvantageOptions{TokenEstimator::kGae, 1, 0.95}, true, 0.5);
  const double before = run.probability_of_y();
  const std::vector<float> policy = weights_of(run.actor->worker(0).decoder());
  std::vector<float> critic = weights_of(run.critic->worker(0).decoder());
  for (int step = 1; step <= 6; ++step) {
    const StepResult result = run.step("A");
    expect_finite(result.metrics, "ppo");
    EXPECT_EQ(weights_of(run.actor->worker(0).decoder()) == policy, step <= 2) << step;
    EXPECT_EQ(result.metrics.get("actor/pg_loss").has_value(), step > 2) << step;
    EXPECT_NE(weights_of(run.critic->worker(0).decoder()), critic);
    critic = weights_of(run.critic->worker(0).decoder());
    for (const char* name : {"critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean", "critic/grad_norm",
                             "critic/lr", "critic/vf_explained_var", "critic/values/mean", "critic/returns/mean",
                             "critic/advantages/mean", "actor/reward_kl_penalty"})
      EXPECT_TRUE(result.metrics.get(name).has_value()) << name;
    run.store->clear();
  }
  EXPECT_LT(run.probability_of_y(), before);
}

// The return is 1 or 0 by the first letter, which the critic sees from the second of three tokens on: two thirds of the
// variance can be explained.
TEST(Ppo, TheCriticExplainsTheReturns) {
  TinyRun run(ppo_options(100), learning(), TokenAdvantageOptions{TokenEstimator::kGae, 1, 1}, true);
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    last = run.step("A").metrics.get("critic/vf_explained_var").value();
    if (step == 0) first = last;
    run.store->clear();
  }
  EXPECT_LT(first, 0.3);
  EXPECT_GT(last, 0.5);
}

TEST(Ppo, ASavedRunGoesOnBitForBit) {
  const ScratchFolder folder;
  const TokenAdvantageOptions tokens{TokenEstimator::kGae, 1, 0.95};
  TinyRun whole(ppo_options(1), learning(), tokens, true), resumed(ppo_options(1), learning(), tokens, true);
  for (int step = 0; step < 2; ++step) whole.step("A");
  whole.actor->worker(0).save(folder.path());
  whole.critic->worker(0).save(folder.path());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "critic" / "huggingface" / "model.safetensors"));
  resumed.actor->worker(0).load(folder.path());
  resumed.critic->worker(0).load(folder.path());
  resumed.program->restore(whole.program->kl_coefficient());
  resumed.given = whole.given, resumed.steps_done = whole.steps_done;
  for (int step = 0; step < 2; ++step) {
    whole.step("A");
    resumed.step("A");
  }
  EXPECT_EQ(weights_of(whole.actor->worker(0).decoder()), weights_of(resumed.actor->worker(0).decoder()));
  EXPECT_EQ(weights_of(whole.critic->worker(0).decoder()), weights_of(resumed.critic->worker(0).decoder()));
  // The saved critic is a model to start from.
  CriticOptions options;
  options.model_path = folder.path() / "critic" / "huggingface", options.max_model_len = 32;
  EXPECT_NO_THROW(Critic(options, whole.store));
}

// On data that the present weights drew, rollout correction changes nothing at all: every weight is exactly 1.
TEST(Correction, OnPolicyNothingChanges) {
  ProgramOptions plain, corrected;
  corrected.correct_rollout = true;
  EngineOptions engine = learning();
  engine.correction = parse_rollout_correction("token", "2.0", false, "token_k1,seq_max_k3", "1.0,0");
  TinyRun a(plain, engine), b(corrected, engine);
  for (int step = 0; step < 2; ++step) {
    a.step("A");
    const StepResult result = b.step("A");
    for (const Sample& sample : result.batch.samples) {
      const TokenRecord record = b.store->record(sample.handle);
      EXPECT_EQ(record.importance_weights, std::vector<float>(sample.response_length, 1));
      EXPECT_EQ(record.old_logprobs, b.store->get(sample.handle)->rollout_logprobs);
      EXPECT_EQ(sample.trained_length, sample.response_length);
    }
    EXPECT_EQ(result.metrics.get("rollout_corr/rollout_is_mean"), 1.0);
    EXPECT_EQ(result.metrics.get("rollout_corr/kl"), 0.0);
    EXPECT_EQ(result.metrics.get("rollout_corr/rollout_rs_masked_fraction"), 0.0);
    EXPECT_EQ(weights_of(a.actor->worker(0).decoder()), weights_of(b.actor->worker(0).decoder()));
  }
}

// Samples of an earlier version: the old log-probs are those of the present weights, weighed against the sampling.
TEST(Correction, OffPolicySamplesAreWeighed) {
  ProgramOptions options;
  EngineOptions engine = learning(2e-6);  // the logits move by tenths a step
  engine.correction = parse_rollout_correction("token", "5.0", false, "", "");
  TinyRun run(options, engine);
  Engine& actor = run.actor->worker(0);
  const RolloutBatch stale = actor.generate(run.source("A")(4));
  for (int step = 0; step < 3; ++step) run.step("A");
  const CorrectedBatch corrected = actor.correct_rollout(stale);
  double furthest = 0;
  for (const Sample& sample : corrected.samples) {
    const TokenRecord record = run.store->record(sample.handle);
    const auto& sampled = run.store->get(sample.handle)->rollout_logprobs;
    for (size_t t = 0; t < sampled.size(); ++t) {
      const double ratio = std::exp(double{record.old_logprobs[t]} - sampled[t]);
      EXPECT_NEAR(record.importance_weights[t], std::min(ratio, 5.0), 1e-5 * ratio);
      furthest = std::max(furthest, std::abs(std::log(ratio)));
    }
  }
  EXPECT_GT(furthest, 0.01);
  EXPECT_GT(corrected.metrics.get("rollout_corr/k3_kl").value(), 0);
}

}  // namespace
}  // namespace tandem
