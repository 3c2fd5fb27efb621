// The loss of a mini-batch in float64, on a softmax over five ids whose logits are the parameters: gradients against
// finite differences, and independence of how the batch is cut.
#include "train/mini_batch_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/rng.h"

namespace tandem {
namespace {

constexpr size_t kVocab = 5;
using Vector = std::array<double, kVocab>;

Vector log_softmax(const Vector& logits) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  Vector out;
  for (size_t v = 0; v < kVocab; ++v) out[v] = logits[v] - std::log(sum);
  return out;
}

struct Policy {
  Vector logits = {0.3, -0.5, 0.9, 0.1, -0.2};
  double logprob(TokenId id) const { return log_softmax(logits)[static_cast<size_t>(id)]; }
  double entropy() const {
    double sum = 0;
    for (const double l : log_softmax(logits)) sum -= std::exp(l) * l;
    return sum;
  }
  // Adds slopes.logprob * d log p(id) + slopes.entropy * d entropy.
  void add_gradient(TokenId id, const TargetSlopes& slopes, Vector& gradient) const {
    const Vector logprobs = log_softmax(logits);
    for (size_t v = 0; v < kVocab; ++v) {
      const double p = std::exp(logprobs[v]);
      gradient[v] += slopes.logprob * ((v == static_cast<size_t>(id) ? 1 : 0) - p);
      gradient[v] += slopes.entropy * -p * (logprobs[v] + entropy());
    }
  }
};

// Responses of 4, 1, 3 and 6 tokens; old and reference log-probs around the policy's; a masked gap; a row without
// advantage; importance weights.
std::vector<TrainingSample> samples() {
  Philox random(5);
  const Policy policy;
  std::vector<TrainingSample> out;
  size_t i = 0;
  for (const auto& [length, advantage] : {std::pair{4, 1.5}, {1, -0.75}, {3, 0.0}, {6, -1.25}}) {
    auto prompt = std::make_shared<Prompt>();
    prompt->id = 100 + i / 2;
    auto trajectory = std::make_shared<Trajectory>();
    trajectory->prompt = prompt, trajectory->sample_index = static_cast<uint32_t>(i % 2);
    TrainingSample sample;
    for (int t = 0; t < length; ++t) {
      trajectory->response_ids.push_back(static_cast<TokenId>(random.below(kVocab)));
      const double now = policy.logprob(trajectory->response_ids.back());
      trajectory->rollout_logprobs.push_back(static_cast<float>(now + 0.5 * random.normal()));
      sample.ref_logprobs.push_back(static_cast<float>(now + 0.5 * random.normal()));
      sample.importance_weights.push_back(static_cast<float>(0.5 + random.uniform()));
    }
    if (i == 3) trajectory->response_mask = {1, 1, 0, 0, 1, 1};
    sample.trajectory = trajectory, sample.advantage = advantage;
    out.push_back(sample);
    ++i;
  }
  return out;
}

struct Result {
  double loss = 0;
  Vector gradient{};
  LossSums sums;
};

// `chosen_at`: the policy under which a loss over the mini-batch chooses its tokens.
Result run(const LossOptions& options, std::span<const TrainingSample> batch, const Policy& policy,
           const Policy& chosen_at, std::span<const size_t> order) {
  MiniBatchLoss loss(options, batch);
  const auto logprobs = [&](size_t i, const Policy& at) {
    std::vector<double> all;
    for (const TokenId id : batch[i].trajectory->response_ids) all.push_back(at.logprob(id));
    return all;
  };
  if (loss.scope() == LossScope::kMiniBatch) {
    for (size_t i = 0; i < batch.size(); ++i) loss.set_logprobs(i, logprobs(i, chosen_at));
    loss.choose(7);
  }
  Result result;
  for (const size_t i : order) {
    if (!loss.contributes(i)) continue;
    if (loss.scope() == LossScope::kSequence) loss.set_logprobs(i, logprobs(i, policy));
    const auto& ids = batch[i].trajectory->response_ids;
    for (size_t t = 0; t < ids.size(); ++t)
      policy.add_gradient(ids[t], loss.token(i, t, policy.logprob(ids[t]), policy.entropy()), result.gradient);
  }
  result.loss = loss.sums().loss, result.sums = loss.sums();
  return result;
}

constexpr std::array<size_t, 4> kOrder = {0, 1, 2, 3};

struct Case {
  std::string loss, aggregation;
};

class EveryMiniBatch : public testing::TestWithParam<Case> {
 protected:
  EveryMiniBatch() {
    options_.policy = &find_policy_loss(GetParam().loss);
    options_.aggregation = parse_loss_aggregation(GetParam().aggregation);
    options_.norm_length = 8;
    options_.policy_options.clip_cov_low = 0, options_.policy_options.clip_cov_ratio = 0.3;
    options_.policy_options.kl_cov_ratio = 0.3;
  }
  LossOptions options_;
  Policy policy_;
  std::vector<TrainingSample> samples_ = samples();
};

// cispo and dppo hold a weight constant in the derivative. What it is, by their papers, with verl's names of bounds:
// the clipped ratio; the ratio, at most c = 3, of tokens that are within 0.2 of the old policy or move towards it.
std::optional<double> constant_weight(const std::string& name, double logprob, double old, double advantage) {
  const double ratio = std::exp(logprob - old);
  if (name == "cispo") return std::min(1.2, std::max(0.8, ratio));
  if (!name.starts_with("dppo")) return std::nullopt;
  const double p = std::exp(logprob), q = std::exp(old);
  const double kl = q * std::log(q / p) + (1 - q) * std::log((1 - q) / (1 - p));
  const bool outwards = advantage > 0 ? p > q : p < q;
  const bool far = (name == "dppo_tv" ? std::abs(p - q) : kl) > 0.2;
  return outwards && far ? 0 : std::min(3.0, ratio);
}

// Their part of the loss with that weight as it is at `frozen`: its differences are the derivative.
double surrogate(const LossOptions& options, const std::string& name, std::span<const TrainingSample> batch,
                 const Policy& policy, const Policy& frozen) {
  BatchCounts counts{0, 0, options.norm_length};
  std::vector<int64_t> lengths;
  for (const TrainingSample& sample : batch) {
    lengths.push_back(trained_length(token_mask(*sample.trajectory, sample.mask)));
    counts.num_tokens += lengths.back(), counts.num_sequences += lengths.back() > 0 ? 1 : 0;
  }
  double loss = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const auto mask = token_mask(*batch[i].trajectory, batch[i].mask);
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] == 0) continue;
      const TokenId id = batch[i].trajectory->response_ids[t];
      const double old = batch[i].trajectory->rollout_logprobs[t], ref = batch[i].ref_logprobs[t];
      const double policy_loss = -batch[i].advantage * policy.logprob(id) *
                                 constant_weight(name, frozen.logprob(id), old, batch[i].advantage).value();
      loss += token_weight(options.aggregation, counts, lengths[i]) *
              (batch[i].importance_weights[t] * policy_loss +
               options.kl_loss_coef * token_kl(options.kl_type, policy.logprob(id), ref).value -
               options.entropy_coeff * policy.entropy());
    }
  }
  return loss;
}

TEST_P(EveryMiniBatch, GradientIsTheDerivative) {
  const bool frozen = constant_weight(GetParam().loss, -1, -1, 1).has_value();
  // gspo's derivative goes through a token's own log-prob: it is the sequence's where its tokens weigh alike.
  if (GetParam().loss == "gspo")
    for (TrainingSample& sample : samples_) sample.importance_weights.clear();
  options_.use_kl_loss = true, options_.kl_loss_coef = 0.3, options_.entropy_coeff = 0.05;
  const Result at = run(options_, samples_, policy_, policy_, kOrder);
  const double h = 1e-6;
  for (size_t v = 0; v < kVocab; ++v) {
    Policy up = policy_, down = policy_;
    up.logits[v] += h, down.logits[v] -= h;
    const auto loss_at = [&](const Policy& moved) {
      return frozen ? surrogate(options_, GetParam().loss, samples_, moved, policy_)
                    : run(options_, samples_, moved, policy_, kOrder).loss;
    };
    EXPECT_NEAR(at.gradient[v], (loss_at(up) - loss_at(down)) / (2 * h), 1e-7) << v;
  }
}

// geo_mean has one loss a response, of ratio 1 here, so -A = -1.5; weights 1/2, 2, 4 and a masked 100 count by their
// geometric mean 4^(1/3).
TEST(MiniBatchLoss, GeometricMeansTakeOneWeightAResponse) {
  auto trajectory = std::make_shared<Trajectory>();
  trajectory->prompt = std::make_shared<Prompt>();
  trajectory->response_ids.assign(4, 0);
  trajectory->rollout_logprobs.assign(4, -1);
  std::vector<TrainingSample> batch(1);
  batch[0].trajectory = trajectory, batch[0].advantage = 1.5;
  batch[0].importance_weights = {0.5F, 2, 4, 100}, batch[0].mask = {1, 1, 1, 0};
  LossOptions options;
  options.policy = &find_policy_loss("geo_mean"), options.aggregation = LossAggregation::kSeqMeanTokenMean;
  MiniBatchLoss loss(options, batch);
  loss.set_logprobs(0, {-1, -1, -1, -1});
  double slope = 0;
  for (size_t t = 0; t < 4; ++t) slope += loss.token(0, t, -1, 0).logprob;
  EXPECT_NEAR(loss.sums().loss, -1.5 * std::cbrt(4.0), 1e-7);
  EXPECT_NEAR(slope, -1.5 * std::cbrt(4.0), 1e-7);
}

TEST_P(EveryMiniBatch, DoesNotKnowHowTheBatchIsCut) {
  for (const bool with_terms : {false, true}) {
    options_.use_kl_loss = with_terms, options_.entropy_coeff = with_terms ? 0.05 : 0;
    const Result whole = run(options_, samples_, policy_, policy_, kOrder);
    for (std::array<size_t, 4> order = kOrder; std::ranges::next_permutation(order).found;) {
      const Result cut = run(options_, samples_, policy_, policy_, order);
      EXPECT_NEAR(cut.loss, whole.loss, 1e-12);
      EXPECT_EQ(cut.sums.num_computed_tokens, whole.sums.num_computed_tokens);
      for (size_t v = 0; v < kVocab; ++v) EXPECT_NEAR(cut.gradient[v], whole.gradient[v], 1e-12);
    }
    // The batch itself in another order.
    std::vector<TrainingSample> turned(samples_.rbegin(), samples_.rend());
    const Result other = run(options_, turned, policy_, policy_, kOrder);
    EXPECT_NEAR(other.loss, whole.loss, 1e-12);
    for (size_t v = 0; v < kVocab; ++v) EXPECT_NEAR(other.gradient[v], whole.gradient[v], 1e-12);
  }
}

// Two ranks have all samples, for the counts, and each computes some: their sums are one rank's.
TEST_P(EveryMiniBatch, DoesNotKnowHowManyRanksShareIt) {
  options_.use_kl_loss = true, options_.kl_loss_coef = 0.3, options_.entropy_coeff = 0.05;
  const Result whole = run(options_, samples_, policy_, policy_, kOrder);
  for (size_t mine = 0; mine < 16; ++mine) {
    std::vector<size_t> ranks[2];
    for (const size_t i : kOrder) ranks[mine >> i & 1].push_back(i);
    const Result a = run(options_, samples_, policy_, policy_, ranks[0]),
                 b = run(options_, samples_, policy_, policy_, ranks[1]);
    EXPECT_NEAR(a.loss + b.loss, whole.loss, 1e-12);
    EXPECT_EQ(a.sums.clip_fraction + b.sums.clip_fraction, whole.sums.clip_fraction);
    for (size_t v = 0; v < kVocab; ++v) EXPECT_NEAR(a.gradient[v] + b.gradient[v], whole.gradient[v], 1e-12);
  }
}

// What is not computed would have added nothing.
TEST_P(EveryMiniBatch, SkipsOnlyWhatIsZero) {
  MiniBatchLoss loss(options_, samples_);
  for (size_t i = 0; i < samples_.size(); ++i) {
    std::vector<double> logprobs;
    for (const TokenId id : samples_[i].trajectory->response_ids) logprobs.push_back(policy_.logprob(id));
    if (loss.scope() != LossScope::kToken) loss.set_logprobs(i, logprobs);
  }
  if (loss.scope() == LossScope::kMiniBatch) loss.choose(7);
  for (size_t i = 0; i < samples_.size(); ++i) {
    double size = 0;
    for (size_t t = 0; t < num_tokens(samples_[i]); ++t)
      size += std::abs(loss.token(i, t, policy_.logprob(samples_[i].trajectory->response_ids[t]), 0).logprob);
    EXPECT_TRUE(loss.contributes(i) || size == 0) << i;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const PolicyLossKind& kind : policy_losses())
    for (const char* mode :
         {"token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"})
      if (!kind.aggregation || parse_loss_aggregation(mode) == *kind.aggregation)
        all.push_back({std::string(kind.name), mode});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, EveryMiniBatch, testing::ValuesIn(cases()), [](const auto& param) {
  std::string name = param.param.loss + "_" + param.param.aggregation;
  std::ranges::replace(name, '-', '_');
  return name;
});

// LOSS-1: responses of 1 and 3 tokens, advantages 1 and -1, on policy. A token's loss is -A: -1 | 1, 1, 1. One
// parameter makes every token with probability sigma(0), so d log p = 0.5 and the gradient of token-mean (-0.5 + 1.5) /
// 4 = 0.25.
TEST(MiniBatchLoss, FourTokensOfTwoResponsesHoweverTheyAreCut) {
  std::vector<TrainingSample> batch(2);
  for (size_t i = 0; i < 2; ++i) {
    auto trajectory = std::make_shared<Trajectory>();
    trajectory->prompt = std::make_shared<Prompt>();
    trajectory->response_ids.assign(1 + 2 * i, 0);
    trajectory->rollout_logprobs.assign(1 + 2 * i, std::log(0.5F));
    batch[i].trajectory = trajectory, batch[i].advantage = i == 0 ? 1 : -1;
  }
  const auto of = [&](std::string_view aggregation, std::vector<std::vector<size_t>> ranks) {
    LossOptions options;
    options.aggregation = parse_loss_aggregation(aggregation);
    std::pair<double, double> loss_and_gradient;
    for (const auto& mine : ranks) {
      MiniBatchLoss loss(options, batch);
      for (const size_t i : mine)
        for (size_t t = 0; t < num_tokens(batch[i]); ++t)
          loss_and_gradient.second += 0.5 * loss.token(i, t, double{std::log(0.5F)}, 0).logprob;
      loss_and_gradient.first += loss.sums().loss;
      EXPECT_EQ(loss.sums().pg_loss, loss.sums().loss);  // what is reported
    }
    return loss_and_gradient;
  };
  using Cut = std::vector<std::vector<size_t>>;
  for (const Cut& ranks : {Cut{{0, 1}}, Cut{{1, 0}}, Cut{{0}, {1}}, Cut{{}, {0, 1}}}) {
    EXPECT_NEAR(of("token-mean", ranks).first, 0.5, 1e-12);  // (-1 + 3) / 4; a mean of micro-batches' means would be 0
    EXPECT_NEAR(of("token-mean", ranks).second, 0.25, 1e-12);
    EXPECT_NEAR(of("seq-mean-token-mean", ranks).first, 0, 1e-7);  // (-1 + 1) / 2
    EXPECT_NEAR(of("seq-mean-token-sum", ranks).first, 1, 1e-12);  // (-1 + 3) / 2
    EXPECT_NEAR(of("token-sum", ranks).first, 2, 1e-12);
  }
}

// Two responses of one prompt, on policy (ratio 1), advantage 1: 2 tokens and 3, one of them masked. token-mean over 4
// tokens; importance weights 2 for all of the first: (-2 - 2 - 1 - 1) / 4.
TEST(MiniBatchLoss, MasksAndImportanceWeights) {
  std::vector<TrainingSample> batch(2);
  for (size_t i = 0; i < 2; ++i) {
    auto trajectory = std::make_shared<Trajectory>();
    trajectory->prompt = std::make_shared<Prompt>();
    trajectory->response_ids.assign(2 + i, 0);
    trajectory->rollout_logprobs.assign(2 + i, -1);
    batch[i].trajectory = trajectory, batch[i].advantage = 1;
  }
  batch[0].importance_weights = {2, 2};
  batch[1].mask = {1, 0, 1};
  const auto loss_of = [&](std::string_view aggregation) {
    LossOptions options;
    options.aggregation = parse_loss_aggregation(aggregation);
    MiniBatchLoss loss(options, batch);
    for (size_t i = 0; i < 2; ++i)
      for (size_t t = 0; t < num_tokens(batch[i]); ++t) loss.token(i, t, -1, 0);
    return loss.sums();
  };
  EXPECT_NEAR(loss_of("token-mean").loss, -1.5, 1e-15);
  EXPECT_EQ(loss_of("token-mean").num_computed_tokens, 4);
  EXPECT_NEAR(loss_of("seq-mean-token-mean").loss, -1.5, 1e-7);  // (-2 - 1) / 2
  EXPECT_NEAR(loss_of("seq-mean-token-sum").loss, -3, 1e-15);    // (-4 - 2) / 2
  batch[1].mask = {0, 0, 0};                                     // a row without tokens is no sequence
  EXPECT_NEAR(loss_of("seq-mean-token-sum").loss, -4, 1e-15);
  EXPECT_NEAR(loss_of("token-mean").loss, -2, 1e-15);
  batch[0].mask = {0, 0};  // nothing at all
  EXPECT_EQ(loss_of("token-mean").loss, 0);
  EXPECT_FALSE(MiniBatchLoss({}, batch).contributes(0));
}

}  // namespace
}  // namespace tandem
