// One policy update of adapters: against PEFT's autograd in float64, and against the gradient of the merged model by
// the chain rule: W' = W + s·B·A gives dB = s·dW'·Aᵀ and dA = s·Bᵀ·dW'.
#include <gtest/gtest.h>

#include "model/lora.h"
#include "model/random_adapters.h"
#include "train/policy_batch.h"

namespace tandem {
namespace {

std::unique_ptr<Decoder> adapted(const std::filesystem::path& folder, const DecoderWeights& adapters) {
  auto decoder = make_decoder(folder);
  attach_adapters(decoder->weights(), adapters);
  return decoder;
}

class PeftGradient : public testing::TestWithParam<std::string> {};

TEST_P(PeftGradient, IsThatOfPeft) {
  const auto model = model_folder(GetParam()), folder = model / "lora";
  const auto golden = read_json(folder / "golden.json");
  const ModelConfig config = load_model_config(model);
  const auto decoder = adapted(model, load_adapters(folder, config));
  const std::string loss = "clip_kl_entropy_seq_sum";
  const Update update = gradient_of(*decoder, golden_options(golden, loss), golden_samples(golden));
  EXPECT_NEAR(update.stats.loss, golden["losses"][loss]["loss"].get<double>(), 2e-5);
  const SafetensorsFile file(folder / "gradient.safetensors");
  const auto found = hf_parameters(config, update.gradients);
  ASSERT_EQ(found.size(), file.tensors().size());
  double difference = 0, whole = 0;
  for (const auto& [name, tensor] : found) {
    const TensorView* view = file.find(name);
    ASSERT_NE(view, nullptr) << name;
    std::vector<float> wanted(view->bytes.size() / sizeof(float));
    std::memcpy(wanted.data(), view->bytes.data(), view->bytes.size());
    ASSERT_EQ(wanted.size(), values(tensor).size()) << name;
    EXPECT_LE(distance(values(tensor), wanted), 2e-4 * norm(wanted)) << name;
    difference = std::hypot(difference, distance(values(tensor), wanted));
    whole = std::hypot(whole, norm(wanted));
  }
  EXPECT_LE(difference, 3e-5 * whole);
}

INSTANTIATE_TEST_SUITE_P(Models, PeftGradient, testing::Values("qwen2", "llama_bias", "qwen3"),
                         [](const auto& param) { return param.param; });

class LoraGradient : public testing::TestWithParam<std::string> {
 protected:
  LoraGradient() {
    LoraOptions options{.rank = 3, .alpha = 5, .target_modules = {"all-linear"}};
    adapters_ = new_adapters(load_model_config(folder_), options);
    randomize(adapters_, 4, 0.05);
    decoder_ = adapted(folder_, adapters_);
  }
  std::filesystem::path folder_ = model_folder(GetParam());
  nlohmann::json golden_ = read_json(folder_ / "golden_grad.json");
  std::vector<TrainingSample> samples_ = golden_samples(golden_);
  TrainerOptions options_ = golden_options(golden_, "clip_kl_entropy_seq_sum");
  DecoderWeights adapters_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_P(LoraGradient, FollowsFromThatOfTheMergedModel) {
  const Update mine = gradient_of(*decoder_, options_, samples_);
  const auto whole = make_decoder(folder_);
  attach_adapters(whole->weights(), adapters_);
  merge_adapters(whole->weights());
  const Update merged = gradient_of(*whole, options_, samples_);
  EXPECT_NEAR(mine.stats.loss, merged.stats.loss, 1e-5);
  for (size_t i = 0; i < adapters_.layers.size(); ++i)
    for (Linear LayerWeights::*member : kLinears)
      for (size_t k = 0; k < (adapters_.layers[i].*member).adapters.size(); ++k) {
        const Adapter& adapter = (adapters_.layers[i].*member).adapters[k];
        const Adapter& got = (mine.gradients.layers[i].*member).adapters[k];
        const auto a = values(adapter.a_RE), b = values(adapter.b_MR);
        const auto dweight = values((merged.gradients.layers[i].*member).weight_NE);
        const int64_t rank = adapter.a_RE.size(0), inputs = adapter.a_RE.size(1), outputs = adapter.b_MR.size(0);
        std::vector<float> da(a.size()), db(b.size());
        for (int64_t m = 0; m < outputs; ++m)
          for (int64_t r = 0; r < rank; ++r) {
            double sum = 0;
            for (int64_t e = 0; e < inputs; ++e)
              sum += double{dweight[(adapter.first + m) * inputs + e]} * a[r * inputs + e];
            db[m * rank + r] = static_cast<float>(5.0 / 3 * sum);
          }
        for (int64_t r = 0; r < rank; ++r)
          for (int64_t e = 0; e < inputs; ++e) {
            double sum = 0;
            for (int64_t m = 0; m < outputs; ++m)
              sum += double{b[m * rank + r]} * dweight[(adapter.first + m) * inputs + e];
            da[r * inputs + e] = static_cast<float>(5.0 / 3 * sum);
          }
        EXPECT_LE(distance(values(got.a_RE), da), 1e-4 * norm(da)) << adapter.module;
        EXPECT_LE(distance(values(got.b_MR), db), 1e-4 * norm(db)) << adapter.module;
      }
}

// LOSS-1 for adapters, and the shared prompt's rows.
TEST_P(LoraGradient, NeitherCutsNorRecomputationMatter) {
  const Update whole = gradient_of(*decoder_, options_, samples_);
  for (const auto& [tokens, samples] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {30, 0}, {4096, 1}, {4096, 2}}) {
    TrainerOptions cut = options_;
    cut.max_micro_tokens = tokens, cut.max_micro_samples = samples;
    const Update parts = gradient_of(*decoder_, cut, samples_);
    EXPECT_NEAR(parts.stats.loss, whole.stats.loss, 1e-12);
    EXPECT_LE(relative_error(parts.gradients, whole.gradients), 1e-5) << tokens << " " << samples;
  }
  TrainerOptions keep = options_;
  keep.max_micro_tokens = 64;
  TrainerOptions recompute = keep;
  recompute.activation_bytes = 1;
  EXPECT_TRUE(bitwise_equal(gradient_of(*decoder_, recompute, samples_).gradients,
                            gradient_of(*decoder_, keep, samples_).gradients));
}

// Central differences of the loss along the gradient: norm² a unit of step. A loss without clips has no kinks.
TEST_P(LoraGradient, IsTheSlopeOfTheLoss) {
  options_.policy = &find_policy_loss("reinforce");
  const Update update = gradient_of(*decoder_, options_, samples_);
  double squares = 0;
  for (const auto& [name, tensor] : parameters(update.gradients)) squares += std::pow(norm(values(tensor)), 2);
  const double step = 2e-4 / std::sqrt(squares);
  const auto loss_at = [&](double by) {
    const auto from = parameters(trained(decoder_->weights())), along = parameters(update.gradients);
    std::vector<std::vector<float>> kept;
    for (size_t i = 0; i < from.size(); ++i) {
      const auto x = values(from[i].tensor), g = values(along[i].tensor);
      kept.emplace_back(x.begin(), x.end());
      for (size_t j = 0; j < x.size(); ++j) x[j] = static_cast<float>(x[j] + by * g[j]);
    }
    const double loss = gradient_of(*decoder_, options_, samples_).stats.loss;
    for (size_t i = 0; i < from.size(); ++i) std::ranges::copy(kept[i], values(from[i].tensor).begin());
    return loss;
  };
  EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), squares, 0.02 * squares);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraGradient, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

// Only adapters have gradients, moments and a place in the optimizer; the weights below keep their bits.
TEST(LoraUpdate, LeavesTheModelAsItWas) {
  const auto folder = model_folder("qwen3");
  const auto golden = read_json(folder / "golden_grad.json");
  const LoraOptions options{.rank = 2, .target_modules = {"q_proj", "down_proj"}};
  const auto decoder = adapted(folder, new_adapters(load_model_config(folder), options));
  const auto fresh = make_decoder(folder);
  Optimizer optimizer(decoder->weights(), {.lr = 1e-2});
  EXPECT_EQ(parameters(optimizer.first_moment()).size(), 8U);  // a and b of two projections of two blocks
  EXPECT_EQ(parameters(optimizer.second_moment()).size(), 8U);
  EXPECT_EQ(parameters(zeros_of_trained(decoder->weights())).size(), 8U);
  const ParameterCounts counts = count_parameters(decoder->weights());
  // hidden 32, 4 heads of 16, inner 40: q_proj 2 · (32 + 64), down_proj 2 · (40 + 32), twice.
  EXPECT_EQ(counts.trained, 2 * (2 * (32 + 64) + 2 * (40 + 32)));
  EXPECT_EQ(counts.frozen, num_parameters(decoder->config()));
  Trainer trainer(*decoder, optimizer, golden_options(golden, "clip_token_mean"));
  trainer.update(golden_samples(golden));
  trainer.update(golden_samples(golden));
  EXPECT_TRUE(bitwise_equal(without_adapters(decoder->weights()), fresh->weights()));
  for (const auto& [name, tensor] : parameters(trained(decoder->weights()))) EXPECT_GT(norm(values(tensor)), 0) << name;
}

}  // namespace
}  // namespace tandem
