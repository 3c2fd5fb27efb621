// MODEL-3: the scaled over the unscaled inverse frequency, by index; reference values from the papers' formulas.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace tandem {
namespace {

std::string config_with(const std::string& rope, const std::string& head_dim) {
  return R"({"model_type":"llama","vocab_size":8,"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,)"
         R"("num_attention_heads":1,"max_position_embeddings":131072,"head_dim":)" +
         head_dim + "," + rope + "}";
}

ModelConfig parse(const std::string& rope, const std::string& head_dim = "128") {
  return parse_model_config(config_with(rope, head_dim), "config.json");
}

std::vector<double> ratios(const ModelConfig& config) {
  auto scaled = inverse_frequencies(config);
  for (size_t i = 0; i < scaled.size(); ++i)
    scaled[i] *= std::pow(config.rope.theta, 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  return scaled;
}

constexpr double kPrinted = 1e-6;  // half a unit of the last digit of the reference values, and a little

const std::string kYarn =
    R"("rope_theta":1e6,"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":32768,)"
    R"("beta_fast":32,"beta_slow":1})";

void expect_case_c(const ModelConfig& config) {
  const auto ratio = ratios(config);
  ASSERT_EQ(ratio.size(), 64u);
  for (size_t i = 0; i <= 23; ++i) EXPECT_NEAR(ratio[i], 1.0, 1e-12) << i;
  EXPECT_NEAR(ratio[24], 0.955882, kPrinted);
  EXPECT_NEAR(ratio[30], 0.691176, kPrinted);
  EXPECT_NEAR(ratio[35], 0.470588, kPrinted);
  EXPECT_NEAR(ratio[39], 0.294118, kPrinted);
  for (size_t i = 40; i < 64; ++i) EXPECT_NEAR(ratio[i], 0.25, 1e-12) << i;
  EXPECT_NEAR(rope_attention_factor(config.rope), 1.138629, kPrinted);
}

TEST(Rope, Unscaled) {
  const auto config = parse(R"("rope_theta":10000)", "8");
  const std::vector<double> expected{1.0, 0.1, 0.01, 0.001};
  const auto actual = inverse_frequencies(config);
  ASSERT_EQ(actual.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(actual[i], expected[i], 1e-15);
  EXPECT_EQ(rope_attention_factor(config.rope), 1.0);
}

TEST(Rope, Llama3Factor32) {  // (A) Llama-3.2
  const auto ratio = ratios(parse(R"("rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":32.0,)"
                                  R"("low_freq_factor":1.0,"high_freq_factor":4.0,)"
                                  R"("original_max_position_embeddings":8192})",
                                  "64"));
  ASSERT_EQ(ratio.size(), 32u);
  for (size_t i = 0; i <= 14; ++i) EXPECT_NEAR(ratio[i], 1.0, 1e-12) << i;
  EXPECT_NEAR(ratio[15], 0.605573, kPrinted);
  EXPECT_NEAR(ratio[16], 0.303743, kPrinted);
  EXPECT_NEAR(ratio[17], 0.103448, kPrinted);
  for (size_t i = 18; i < 32; ++i) EXPECT_NEAR(ratio[i], 0.03125, 1e-12) << i;
}

TEST(Rope, Llama3Factor8) {  // (B) Llama-3.1
  const auto ratio = ratios(parse(R"("rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,)"
                                  R"("low_freq_factor":1.0,"high_freq_factor":4.0,)"
                                  R"("original_max_position_embeddings":8192})"));
  ASSERT_EQ(ratio.size(), 64u);
  EXPECT_NEAR(ratio[28], 1.0, 1e-12);
  EXPECT_NEAR(ratio[30], 0.643743, kPrinted);
  EXPECT_NEAR(ratio[32], 0.371122, kPrinted);
  EXPECT_NEAR(ratio[34], 0.190211, kPrinted);
  for (size_t i = 36; i < 64; ++i) EXPECT_NEAR(ratio[i], 0.125, 1e-12) << i;
}

TEST(Rope, Yarn) { expect_case_c(parse(kYarn)); }  // (C)

TEST(Rope, Llama3Toy) {  // (D)
  const auto actual = inverse_frequencies(
      parse(R"("rope_theta":10000,"rope_scaling":{"rope_type":"llama3","factor":4,"low_freq_factor":1,)"
            R"("high_freq_factor":4,"original_max_position_embeddings":64})",
            "16"));
  const std::vector<double> expected{1, 0.254648, 0.0254648, 0.00790569, 0.0025, 0.000790569, 0.00025, 7.90569e-5};
  ASSERT_EQ(actual.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6 * expected[i]) << i;
}

TEST(Rope, UnknownTypesAreErrors) {  // (E)
  for (const char* type : {"dynamic", "longrope", "mrope", "ntk", ""}) {
    try {
      parse(R"("rope_scaling":{"rope_type":")" + std::string(type) + R"(","factor":2})");
      ADD_FAILURE() << type;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("rope_type"), std::string::npos) << error.what();
    }
  }
}

TEST(Rope, FactorOneChangesNothing) {  // (F)
  const auto plain = inverse_frequencies(parse(R"("rope_theta":500000.0)"));
  for (const std::string type : {"linear", "llama3", "yarn"}) {
    const auto config = parse(R"("rope_theta":500000.0,"rope_scaling":{"rope_type":")" + type +
                              R"(","factor":1.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                              R"("original_max_position_embeddings":8192})");
    const auto actual = inverse_frequencies(config);
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(actual[i], plain[i], 1e-14 * plain[i]) << type << i;
    EXPECT_EQ(rope_attention_factor(config.rope), 1.0);
  }
}

TEST(Rope, OtherSpellingsGiveTheSame) {  // (G)
  expect_case_c(parse(R"("rope_theta":1e6,"rope_scaling":{"type":"yarn","factor":4.0,)"
                      R"("original_max_position_embeddings":32768})"));
  expect_case_c(parse(R"("rope_parameters":{"rope_type":"yarn","rope_theta":1000000.0,"factor":4.0,)"
                      R"("original_max_position_embeddings":32768})"));
  expect_case_c(parse(R"("rope_scaling":null,"rope_parameters":{"rope_type":"yarn","rope_theta":1000000.0,)"
                      R"("original_max_position_embeddings":32768})"));  // 131072 / 32768
  const auto plain = parse(R"("rope_parameters":{"rope_type":"default","rope_theta":10000.0})", "8");
  EXPECT_NEAR(inverse_frequencies(plain)[3], 0.001, 1e-15);
}

TEST(Rope, Linear) {
  const auto actual = inverse_frequencies(parse(R"("rope_scaling":{"type":"linear","factor":2.0})", "4"));
  EXPECT_NEAR(actual[0], 0.5, 1e-15);
  EXPECT_NEAR(actual[1], 0.005, 1e-15);
}

TEST(Rope, YarnAttentionFactor) {
  RopeConfig rope{.type = RopeType::kYarn, .factor = 4.0, .original_max_position_embeddings = 32768};
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_attention_factor(rope), 1.25);
  rope.attention_factor.reset();
  rope.mscale = 0.707, rope.mscale_all_dim = 0.707;
  EXPECT_EQ(rope_attention_factor(rope), 1.0);
  rope.mscale = 1.0;  // (0.1 ln 4 + 1) / (0.0707 ln 4 + 1)
  EXPECT_NEAR(rope_attention_factor(rope), 1.1386294361 / 1.0980110113, 1e-9);
}

TEST(Rope, HalfGivenScalingsAreErrors) {
  for (
      const char* scaling :
      {R"({"factor":2})", R"({"type":"linear"})", R"({"type":"linear","factor":0.5})",
       R"({"type":"linear","factor":"2"})", R"({"type":"yarn","rope_type":"llama3","factor":2})",
       R"({"type":"llama3","factor":2,"low_freq_factor":1,"high_freq_factor":4})",
       R"({"type":"llama3","factor":2,"original_max_position_embeddings":64})",
       R"({"type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":64})",
       R"({"type":"yarn"})", R"([])", R"({"type":"default","partial_rotary_factor":0.5})"})
    EXPECT_THROW(parse(R"("rope_scaling":)" + std::string(scaling)), ConfigError) << scaling;
}

}  // namespace
}  // namespace tandem
