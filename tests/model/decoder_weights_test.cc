// Saving and loading weights, and small models whose logits can be worked out by hand.
#include "model/decoder_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"
#include "model/fixtures.h"

namespace tandem {
namespace {

using nlohmann::json;

bool same_weights(const DecoderWeights& a, const DecoderWeights& b) {
  const auto x = parameters(a), y = parameters(b);
  bool same = x.size() == y.size();
  for (size_t i = 0; same && i < x.size(); ++i)
    same = x[i].name == y[i].name && same_bits(values(x[i].tensor), values(y[i].tensor));
  return same;
}

TEST(DecoderWeights, Float32ComesBackBitwise) {
  for (const auto& name : kTinyModels) {
    const ScratchFolder folder;
    const auto config = load_model_config(model_folder(name));
    const auto weights = read_weights(model_folder(name), config);
    save_weights(folder / "saved", config, weights, DType::kF32);
    const auto again = load_model_config(folder / "saved");
    EXPECT_EQ(again.tie_word_embeddings, config.tie_word_embeddings);
    EXPECT_TRUE(same_weights(read_weights(folder / "saved", again), weights)) << name;
    EXPECT_EQ(WeightFolder(folder / "saved").names().size(), expected_tensors(config).size()) << name;
  }
}

// To the nearest of 8 bits of significand, ties to even: 1 + 2^-8 is half way and goes down, 1 + 3 * 2^-8 goes up.
TEST(DecoderWeights, BFloat16RoundsToNearestEven) {
  const ScratchFolder folder;
  const auto config = load_model_config(model_folder("qwen3"));
  auto weights = read_weights(model_folder("qwen3"), config);
  const std::vector<std::pair<float, float>> cases = {{1.0f + 0x1p-8f, 1.0f},
                                                      {1.0f + 3 * 0x1p-8f, 1.0f + 0x1p-6f},
                                                      {1.0f + 0x1p-8f + 0x1p-23f, 1.0f + 0x1p-7f},
                                                      {-0.02f, -0.02001953125f},
                                                      {0.999f, 1.0f},
                                                      {0.997f, 0.99609375f},
                                                      {0.0f, 0.0f},
                                                      {-0.0f, -0.0f}};
  for (size_t i = 0; i < cases.size(); ++i) values(weights.embed_VE)[i] = cases[i].first;
  save_weights(folder / "saved", config, weights, DType::kBF16);
  const auto again = read_weights(folder / "saved", config);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(values(again.embed_VE)[i]), std::bit_cast<uint32_t>(cases[i].second)) << i;
  const auto before = parameters(weights), after = parameters(again);
  for (size_t p = 0; p < before.size(); ++p)
    for (size_t i = 0; i < values(before[p].tensor).size(); ++i) {
      const float x = values(before[p].tensor)[i], y = values(after[p].tensor)[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(y) & 0xffffu, 0u);
      ASSERT_LE(std::abs(x - y), std::ldexp(std::abs(x), -8)) << before[p].name;
    }
  EXPECT_EQ(read_json(folder / "saved" / "config.json")["dtype"], "bfloat16");
  EXPECT_EQ(WeightFolder(folder / "saved").get("model.norm.weight").dtype, DType::kBF16);
}

// A file may mix types. Doubles are refused.
TEST(DecoderWeights, ReadsHalves) {
  const ScratchFolder folder;
  const auto config = load_model_config(model_folder("llama_tied"));
  const WeightFolder source(model_folder("llama_tied"));
  std::vector<uint16_t> halves(static_cast<size_t>(config.hidden_size), 0x3c00);
  const std::vector<std::pair<uint16_t, float>> cases = {
      {0x3c00, 1.0f},     {0xc000, -2.0f},    {0x3555, 0.333251953125f},
      {0x7bff, 65504.0f}, {0x0001, 0x1p-24f}, {0x83ff, -1023 * 0x1p-24f},
      {0x0400, 0x1p-14f}, {0x8000, -0.0f}};
  for (size_t i = 0; i < cases.size(); ++i) halves[i] = cases[i].first;
  std::vector<TensorView> tensors;
  for (const auto& name : source.names()) {
    tensors.push_back(source.get(name));
    if (name == "model.norm.weight")
      tensors.back().dtype = DType::kF16, tensors.back().bytes = std::as_bytes(std::span(halves));
  }
  write_weight_folder(folder.path(), tensors);
  const auto weights = read_weights(folder.path(), config);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(values(weights.final_norm_E)[i]), std::bit_cast<uint32_t>(cases[i].second)) << i;
  const std::vector<double> doubles(halves.size(), 0.1);
  for (auto& tensor : tensors)
    if (tensor.dtype == DType::kF16) tensor.dtype = DType::kF64, tensor.bytes = std::as_bytes(std::span(doubles));
  write_weight_folder(folder.path(), tensors);
  expect_names(error_of<IoError>([&] { read_weights(folder.path(), config); }), {"model.norm.weight", "F64"});
}

ModelConfig one_layer(const std::string& type, const json& more = json::object()) {
  json config = {{"model_type", type},
                 {"vocab_size", 24},
                 {"hidden_size", 64},
                 {"intermediate_size", 40},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"rms_norm_eps", 1e-6},
                 {"max_position_embeddings", 64},
                 {"rope_theta", 10000.0},
                 {"tie_word_embeddings", false},
                 {"hidden_act", "silu"}};
  config.update(more);
  return parse_model_config(config.dump(), "one_layer");
}

DecoderWeights random_weights(const ModelConfig& config) {
  DecoderWeights weights = zero_weights(config);
  init_random(weights, 5);
  for (const auto& [name, tensor] : parameters(weights))
    if (!name.ends_with("norm"))
      for (float& x : values(tensor)) x *= 12;
  return weights;
}

const Tokens kTokens = {3, 14, 1, 5, 9, 2, 6};

Rows logits_of(const ModelConfig& config, DecoderWeights weights) {
  const Decoder decoder(config, std::move(weights), 64);
  return paged_logits(decoder, {kTokens}, {7})[0];
}

std::vector<double> normed(std::vector<double> x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
  return x;
}

// Values of 0 and a bias b: attention gives b at every position whatever the scores, for they sum to 1. With no MLP
// (down = 0), logits = lm_head . norm(embedding + o . b), query heads 0, 1 taking b's first head and 2, 3 its second.
TEST(DecoderByHand, Qwen2BiasOfTheValues) {
  const auto config = one_layer("qwen2");
  ASSERT_TRUE(config.qkv_bias);
  auto weights = random_weights(config);
  auto& layer = weights.layers[0];
  const int64_t q = config.q_size(), kv = config.kv_size(), width = config.hidden_size, dim = config.head_dim;
  ASSERT_EQ(dim, 16);
  std::ranges::fill(values(layer.qkv.weight_NE).last(static_cast<size_t>(kv * width)), 0.0f);
  std::ranges::fill(values(layer.down.weight_NE), 0.0f);
  const auto bias = values(layer.qkv.bias_N).last(static_cast<size_t>(kv));
  for (int64_t i = 0; i < kv; ++i) bias[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  const auto rows = logits_of(config, weights);
  for (size_t p = 0; p < kTokens.size(); ++p) {
    std::vector<double> x(width);
    for (int64_t e = 0; e < width; ++e) {
      x[e] = values(weights.embed_VE)[kTokens[p] * width + e];
      for (int64_t j = 0; j < q; ++j)
        x[e] += static_cast<double>(values(layer.o.weight_NE)[e * q + j]) * bias[j / dim / 2 * dim + j % dim];
    }
    const auto y = normed(x);
    for (int64_t v = 0; v < config.vocab_size; ++v) {
      double logit = 0;
      for (int64_t e = 0; e < width; ++e) logit += values(weights.lm_head_VE)[v * width + e] * y[e];
      ASSERT_NEAR(rows[p][v], logit, 1e-5) << "position " << p << ", token " << v;
    }
  }
}

TEST(DecoderByHand, Qwen2WithoutBiasIsLlama) {
  const auto qwen2 = one_layer("qwen2"), llama = one_layer("llama");
  const auto plain = random_weights(llama);
  auto biased = random_weights(qwen2);
  const auto from = hf_parameters(llama, plain);
  for (const auto& [name, tensor] : hf_parameters(qwen2, biased)) {
    const auto match = std::ranges::find(from, name, &NamedTensor::name);
    if (match != from.end()) {
      std::ranges::copy(values(match->tensor), values(tensor).begin());
    } else {
      ASSERT_TRUE(name.ends_with("bias")) << name;
      std::ranges::fill(values(tensor), 0.0f);
    }
  }
  const auto a = logits_of(qwen2, biased), b = logits_of(llama, plain);
  for (size_t p = 0; p < a.size(); ++p)
    for (size_t v = 0; v < a[p].size(); ++v) ASSERT_NEAR(a[p][v], b[p][v], 1e-5);
}

// head_dim 32 where hidden / heads is 16. Norms of 2 instead of 1 on q and k make the scores four times as great: the
// first position sees one key only and cannot change, the others must.
TEST(DecoderByHand, Qwen3HeadDimAndNorms) {
  const auto config = one_layer("qwen3", {{"head_dim", 32}});
  auto weights = random_weights(config);
  ASSERT_EQ(weights.layers[0].qkv.weight_NE.size(0), 128 + 2 * 64);
  ASSERT_EQ(weights.layers[0].o.weight_NE.size(1), 128);
  const auto ones = logits_of(config, weights);
  std::ranges::fill(values(weights.layers[0].q_norm_D), 2.0f);
  std::ranges::fill(values(weights.layers[0].k_norm_D), 2.0f);
  const auto twos = logits_of(config, weights);
  for (const float x : ones[0]) ASSERT_TRUE(std::isfinite(x));
  EXPECT_TRUE(same_bits(ones[0], twos[0]));
  for (size_t p = 1; p < ones.size(); ++p) {
    float gap = 0;
    for (size_t v = 0; v < ones[p].size(); ++v) gap = std::max(gap, std::abs(ones[p][v] - twos[p][v]));
    EXPECT_GT(gap, 1e-3) << "position " << p;
  }
}

}  // namespace
}  // namespace tandem
