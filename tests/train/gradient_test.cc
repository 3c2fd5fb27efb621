// One policy update of each tiny model against autograd in float64, and the laws that cutting a batch must obey.
#include <gtest/gtest.h>
#include <omp.h>

#include "train/policy_batch.h"

namespace tandem {
namespace {

using nlohmann::json;

class Gradient : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  bool has_input(int32_t id) const {
    return std::ranges::any_of(samples_, [&](const TrainingSample& sample) {
      const auto &prompt = sample.trajectory->prompt->token_ids, &response = sample.trajectory->response_ids;
      return std::ranges::count(prompt, id) > 0 || std::count(response.begin(), response.end() - 1, id) > 0;
    });
  }
  std::filesystem::path folder_ = model_folder(std::get<0>(GetParam()));
  json golden_ = read_json(folder_ / "golden_grad.json");
  json loss_ = golden_["losses"][std::get<1>(GetParam())];
  std::unique_ptr<Decoder> decoder_ = make_decoder(folder_);
  std::vector<TrainingSample> samples_ = golden_samples(golden_);
  TrainerOptions options_ = golden_options(golden_, std::get<1>(GetParam()));
};

TEST_P(Gradient, AgreesWithTheReference) {
  const Update update = gradient_of(*decoder_, options_, samples_);
  EXPECT_NEAR(update.stats.loss, loss_["loss"].get<double>(), 2e-5);
  EXPECT_NEAR(update.stats.pg_loss, loss_["agg_policy"].get<double>(), 2e-5);
  if (options_.use_kl_loss) {
    EXPECT_NEAR(update.stats.kl_loss, loss_["agg_kl"].get<double>(), 2e-5);
  }
  if (options_.entropy_coeff != 0) {
    EXPECT_NEAR(update.stats.entropy_loss, loss_["agg_entropy"].get<double>(), 2e-4);
  }

  const SafetensorsFile file(folder_ / loss_["gradients"].get<std::string>());
  const double whole = loss_["gradient_norm"].get<double>();
  double difference = 0, found = 0;
  for (const auto& [name, tensor] : hf_parameters(decoder_->config(), update.gradients)) {
    const TensorView* view = file.find(name);
    ASSERT_NE(view, nullptr) << name;
    std::vector<float> wanted(view->bytes.size() / sizeof(float));
    std::memcpy(wanted.data(), view->bytes.data(), view->bytes.size());
    ASSERT_EQ(wanted.size(), values(tensor).size()) << name;
    // transformers gives the embedding of the padding token, id 2, no gradient; see PaddingToken below.
    if (name == "model.embed_tokens.weight" && has_input(2))
      std::ranges::fill(values(tensor).subspan(2 * decoder_->config().hidden_size, decoder_->config().hidden_size),
                        0.0f);
    const double error = distance(values(tensor), wanted);
    // A key's bias moves all scores of a query alike: its true gradient is 0, so measure against the whole too.
    EXPECT_LE(error, 1e-4 * norm(wanted) + 1e-6 * whole) << name << ", norm " << norm(wanted);
    difference = std::hypot(difference, error);
    found = std::hypot(found, norm(values(tensor)));
  }
  EXPECT_EQ(file.tensors().size(), hf_parameters(decoder_->config(), update.gradients).size());
  EXPECT_LE(difference, 2e-5 * whole);
  EXPECT_NEAR(found, whole, 1e-4 * whole);
}

TEST_P(Gradient, CountsWhatTheReferenceCounts) {
  const UpdateStats stats = gradient_of(*decoder_, options_, samples_).stats;
  const bool all = options_.use_kl_loss;  // else the sample of advantage 0 is not computed: 2 of 26 tokens
  EXPECT_EQ(stats.num_tokens, 26);
  EXPECT_EQ(stats.num_computed_tokens, all ? 26 : 24);
  EXPECT_EQ(stats.num_skipped_samples, all ? 0 : 1);
  EXPECT_EQ(stats.clip_fraction, golden_["num_clipped"].get<double>());
  EXPECT_EQ(stats.clip_fraction_lower, golden_["num_dual_clipped"].get<double>());
  double ppo_kl = 0;
  for (const auto& record : golden_["samples"])
    for (size_t t = 0; t < record["logprobs"].size(); ++t)
      if (all || record["advantage"] != 0.0)
        ppo_kl += record["old_logprobs"][t].get<double>() - record["logprobs"][t].get<double>();
  EXPECT_NEAR(stats.ppo_kl, ppo_kl, 1e-4);
}

// LOSS-1: neither the value nor the gradient knows how the batch was cut.
TEST_P(Gradient, MicroBatchesDoNotMatter) {
  const Update whole = gradient_of(*decoder_, options_, samples_);
  const std::vector<std::pair<int64_t, int64_t>> cuts = {{1, 0}, {20, 0}, {30, 0}, {4096, 1}, {4096, 2}, {4096, 4}};
  for (const auto& [tokens, samples] : cuts) {
    TrainerOptions cut = options_;
    cut.max_micro_tokens = tokens, cut.max_micro_samples = samples;
    const Update parts = gradient_of(*decoder_, cut, samples_);
    EXPECT_NEAR(parts.stats.loss, whole.stats.loss, 1e-12) << tokens << " " << samples;
    EXPECT_LE(relative_error(parts.gradients, whole.gradients), 1e-5) << tokens << " " << samples;
    EXPECT_EQ(parts.stats.num_computed_tokens, whole.stats.num_computed_tokens);
  }
}

TEST_P(Gradient, RecomputationAndThreadsChangeNoBit) {
  TrainerOptions keep = options_;
  keep.max_micro_tokens = 64;
  const Update kept = gradient_of(*decoder_, keep, samples_);
  TrainerOptions recompute = keep;
  recompute.activation_bytes = 1;
  const Update again = gradient_of(*decoder_, recompute, samples_);
  EXPECT_EQ(again.stats.loss, kept.stats.loss);
  EXPECT_TRUE(bitwise_equal(again.gradients, kept.gradients));
  recompute.may_recompute = false;
  EXPECT_TRUE(bitwise_equal(gradient_of(*decoder_, recompute, samples_).gradients, kept.gradients));
  const int threads = omp_get_max_threads();
  for (const int count : {1, 2, 3}) {
    omp_set_num_threads(count);
    EXPECT_TRUE(bitwise_equal(gradient_of(*decoder_, keep, samples_).gradients, kept.gradients)) << count;
  }
  omp_set_num_threads(threads);
}

// An entropy term of next to nothing has every sample computed.
TEST_P(Gradient, SkippedSamplesWouldHaveAddedNothing) {
  options_.use_kl_loss = false, options_.entropy_coeff = 0;
  for (size_t i = 0; i < samples_.size(); ++i)
    if (i % 2 == 0) samples_[i].advantage = 0;
  const Update skipped = gradient_of(*decoder_, options_, samples_);
  EXPECT_EQ(skipped.stats.num_skipped_samples, 4);
  options_.entropy_coeff = 1e-30;
  const Update computed = gradient_of(*decoder_, options_, samples_);
  EXPECT_EQ(computed.stats.num_skipped_samples, 0);
  EXPECT_NEAR(skipped.stats.loss, computed.stats.loss, 1e-12);
  EXPECT_LE(relative_error(skipped.gradients, computed.gradients), 1e-5);
}

TEST_P(Gradient, MicroBatchesDoNotMatterToAnyLoss) {
  for (const PolicyLossKind& kind : policy_losses()) {
    options_.policy = &kind;
    options_.policy_options.clip_cov_low = -1, options_.policy_options.clip_cov_ratio = 0.2;
    options_.policy_options.kl_cov_ratio = 0.2;
    if (kind.aggregation) options_.aggregation = *kind.aggregation;
    const Update whole = gradient_of(*decoder_, options_, samples_);
    TrainerOptions cut = options_;
    cut.max_micro_tokens = 20;
    const Update parts = gradient_of(*decoder_, cut, samples_);
    EXPECT_NEAR(parts.stats.loss, whole.stats.loss, 1e-12) << kind.name;
    EXPECT_LE(relative_error(parts.gradients, whole.gradients), 1e-5) << kind.name;
  }
}

TEST_P(Gradient, EveryAggregationGivesTheReferencesLoss) {
  const json& golden = golden_["loss_with_kl_and_entropy"];
  options_.use_kl_loss = true;
  options_.kl_loss_coef = golden["kl_coef"].get<double>(),
  options_.entropy_coeff = golden["entropy_coeff"].get<double>();
  for (const auto& [mode, loss] : golden["by_agg"].items()) {
    options_.aggregation = parse_loss_aggregation(mode);
    const double wanted = loss.get<double>();
    EXPECT_NEAR(gradient_of(*decoder_, options_, samples_).stats.loss, wanted, 1e-5 * (1 + std::abs(wanted))) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Gradient,
                         testing::Combine(testing::ValuesIn(kTinyModels),
                                          testing::Values("clip_token_mean", "clip_kl_entropy_seq_sum")),
                         [](const auto& param) { return std::get<0>(param.param) + "_" + std::get<1>(param.param); });

// The whole update: two mini-batches are two optimizer steps; the same twice gives the same bits; a batch with nothing
// to compute still takes its step (here: decay only).
class WholeUpdate : public testing::Test {
 protected:
  struct Result {
    UpdateStats stats;
    std::unique_ptr<Decoder> decoder;
  };
  Result run(TrainerOptions options, OptimizerOptions rates) {
    int64_t tokens = 0;
    Result result = run_unchecked(options, rates, [&](int64_t n) { tokens += n; });
    EXPECT_EQ(tokens, result.stats.num_tokens);
    return result;
  }
  Result run_unchecked(TrainerOptions options, OptimizerOptions rates, const OnTokens& on_tokens = {}) {
    auto decoder = make_decoder(folder_);
    Optimizer optimizer(decoder->weights(), rates);
    const UpdateStats stats = Trainer(*decoder, optimizer, options).update(samples_, on_tokens);
    return {stats, std::move(decoder)};
  }
  std::filesystem::path folder_ = model_folder("qwen3");
  json golden_ = read_json(folder_ / "golden_grad.json");
  std::vector<TrainingSample> samples_ = golden_samples(golden_);
  TrainerOptions options_ = golden_options(golden_, "clip_token_mean");
};

TEST_F(WholeUpdate, IsRepeatableAndMovesTheLossDown) {
  options_.mini_batch_samples = 3;
  options_.epochs = 2;
  options_.shuffle = true;
  const Result first = run(options_, {.lr = 1e-3}), second = run(options_, {.lr = 1e-3});
  EXPECT_EQ(first.stats.num_optimizer_steps, 4);
  EXPECT_EQ(first.stats.num_tokens, 52);
  EXPECT_TRUE(bitwise_equal(first.decoder->weights(), second.decoder->weights()));
  const double before = gradient_of(*make_decoder(folder_), options_, samples_).stats.loss;
  EXPECT_LT(gradient_of(*first.decoder, options_, samples_).stats.loss, before - 1e-3);
}

// Token 2 is the padding token and an input of these samples: along its gradient the loss rises by the gradient's norm.
TEST_F(WholeUpdate, PaddingTokenIsATokenLikeAnyOther) {
  auto decoder = make_decoder(folder_);
  const Update update = gradient_of(*decoder, options_, samples_);
  const auto width = static_cast<size_t>(decoder->config().hidden_size);
  const auto gradient = values(update.gradients.embed_VE).subspan(2 * width, width);
  const double size = norm(gradient);
  ASSERT_GT(size, 0.1);
  const auto loss_at = [&](double step) {
    const auto moved = make_decoder(folder_);
    const auto row = values(moved->weights().embed_VE).subspan(2 * width, width);
    for (size_t i = 0; i < width; ++i) row[i] += static_cast<float>(step * gradient[i] / size);
    return gradient_of(*moved, options_, samples_).stats.loss;
  };
  EXPECT_NEAR((loss_at(2e-3) - loss_at(-2e-3)) / 4e-3, size, 0.01 * size);
}

TEST_F(WholeUpdate, NothingToComputeStillDecays) {
  for (auto& sample : samples_) sample.advantage = 0;
  const Result result = run(options_, {.lr = 0.5, .weight_decay = 0.25});
  EXPECT_EQ(result.stats.num_optimizer_steps, 1);
  EXPECT_EQ(result.stats.num_skipped_samples, 6);
  EXPECT_EQ(result.stats.num_computed_tokens, 0);
  const auto before = make_decoder(folder_);
  const auto x = parameters(before->weights()), y = parameters(result.decoder->weights());
  for (size_t p = 0; p < x.size(); ++p)
    for (size_t i = 0; i < values(x[p].tensor).size(); ++i)
      ASSERT_FLOAT_EQ(values(y[p].tensor)[i], values(x[p].tensor)[i] * 0.875f) << x[p].name;  // 1 - lr * decay
}

TEST_F(WholeUpdate, AnInfiniteAdvantageIsAnErrorAndLeavesTheWeights) {
  samples_[0].advantage = std::numeric_limits<double>::quiet_NaN();
  auto decoder = make_decoder(folder_);
  Optimizer optimizer(decoder->weights(), {.lr = 1e-3});
  EXPECT_THROW(Trainer(*decoder, optimizer, options_).update(samples_), DataError);
  EXPECT_EQ(optimizer.num_steps(), 0);
  EXPECT_TRUE(bitwise_equal(decoder->weights(), make_decoder(folder_)->weights()));
}

// The update is then that of the other mini-batch alone.
TEST_F(WholeUpdate, AMiniBatchThatIsNotFiniteCanBeLeftOut) {
  options_.mini_batch_samples = 3;
  const std::vector<TrainingSample> all = samples_;
  samples_[1].advantage = std::numeric_limits<double>::quiet_NaN();
  std::vector<size_t> told;
  options_.on_nonfinite = [&](const NonFiniteUpdate& update) {
    EXPECT_FALSE(std::isfinite(update.loss));
    EXPECT_EQ(update.samples[1].trajectory, samples_[1].trajectory);
    EXPECT_EQ(update.optimizer_steps, 0);
    EXPECT_TRUE(update.unchanged);
    told.push_back(update.samples.size());
    return true;
  };
  const Result skipped = run_unchecked(options_, {.lr = 1e-3});
  EXPECT_EQ(told, std::vector<size_t>{3});
  EXPECT_EQ(skipped.stats.num_skipped_updates, 1);
  EXPECT_EQ(skipped.stats.num_optimizer_steps, 1);
  EXPECT_TRUE(std::isfinite(skipped.stats.loss));
  samples_.assign(all.begin() + 3, all.end());
  EXPECT_TRUE(bitwise_equal(skipped.decoder->weights(), run(options_, {.lr = 1e-3}).decoder->weights()));
  samples_[0].advantage = std::numeric_limits<double>::infinity();
  options_.on_nonfinite = [](const NonFiniteUpdate&) { return false; };
  EXPECT_THROW(run_unchecked(options_, {.lr = 1e-3}), DataError);
}

}  // namespace
}  // namespace tandem
