// The decoder through a paged cache against transformers in float64 (tests/data/models), and against itself.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "model/fixtures.h"

namespace tandem {
namespace {

using nlohmann::json;

void expect_near(std::span<const float> got, const json& wanted, double tolerance, const std::string& where) {
  ASSERT_EQ(got.size(), wanted.size()) << where;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i].get<double>(), tolerance) << where << " [" << i << "]";
}

class TinyModel : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Decoder> decoder_ = make_decoder(model_folder(GetParam()));
  json golden_ = read_json(model_folder(GetParam()) / "golden.json");
  std::vector<Tokens> sequences_ = golden_sequences(golden_);
};

TEST_P(TinyModel, AgreesWithTheReference) {
  const auto rows = paged_logits(*decoder_, sequences_, {1});
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const json& wanted = golden_["sequences"][s];
    const std::string where = GetParam() + " sequence " + std::to_string(s);
    expect_near(sequence_logprobs(rows[s], sequences_[s]), wanted["logprobs"], 5e-5, where + " logprobs");
    expect_near(rows[s].back(), wanted["last_logits"], 5e-5, where + " last_logits");
    std::vector<float> entropies;
    for (const auto& row : rows[s]) entropies.push_back(kernels::row_stats(row, 1, true).entropy);
    expect_near(entropies, wanted["entropies"], 5e-5, where + " entropies");
  }
}

// Whole, token by token, in chunks that end inside, at and after a block's border; alone or beside others.
TEST_P(TinyModel, BitsDoNotDependOnChunksOrNeighbours) {
  const auto reference = paged_logits(*decoder_, sequences_, {1});
  const auto expect_same = [&](const Rows& got, size_t s, const std::string& how) {
    ASSERT_EQ(got.size(), reference[s].size());
    for (size_t p = 0; p < got.size(); ++p)
      ASSERT_TRUE(same_bits(got[p], reference[s][p])) << how << ", sequence " << s << ", position " << p;
  };
  for (const std::vector<int>& chunks : {std::vector{64}, {3}, {16}, {17, 1}, {5, 11, 1, 1, 7}, {15, 2, 1}}) {
    const auto together = paged_logits(*decoder_, sequences_, chunks);
    for (size_t s = 0; s < sequences_.size(); ++s)
      expect_same(together[s], s, "first chunk " + std::to_string(chunks[0]));
  }
  for (size_t s = 0; s < sequences_.size(); ++s)
    expect_same(paged_logits(*decoder_, {sequences_[s]}, {7})[0], s, "alone");
}

INSTANTIATE_TEST_SUITE_P(Architectures, TinyModel, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

std::filesystem::path smollm2_folder() {
  const char* named = std::getenv("TANDEM_DEMO_MODEL");
  return named != nullptr ? std::filesystem::path(named) : expand_user("~/.cache/tandem/models/SmolLM2-135M-Instruct");
}

class SmolLm2 : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (std::filesystem::exists(smollm2_folder() / "config.json")) decoder_ = make_decoder(smollm2_folder());
  }
  static void TearDownTestSuite() { decoder_.reset(); }
  void SetUp() override {
    if (!decoder_) GTEST_SKIP() << "no model at " << smollm2_folder() << "; ./dev quickstart makes it";
  }
  static std::unique_ptr<Decoder> decoder_;
  json golden_ = read_json(model_folder("smollm2") / "golden.json");
};
std::unique_ptr<Decoder> SmolLm2::decoder_;

TEST_F(SmolLm2, LogProbsOfTextsAgreeWithTheReference) {
  std::vector<Tokens> texts;
  std::vector<std::string> names;
  for (const auto& [name, text] : golden_["texts"].items()) {
    names.push_back(name);
    texts.push_back(text["ids"].get<Tokens>());
  }
  const auto rows = paged_logits(*decoder_, texts, {64});
  for (size_t i = 0; i < texts.size(); ++i)
    expect_near(sequence_logprobs(rows[i], texts[i]), golden_["texts"][names[i]]["logprobs"], 2e-4, names[i]);
}

// The golden continuation is fed in; at each of its steps the most likely token must be the one it took.
TEST_F(SmolLm2, GreedyContinuationsAgreeWithTheReference) {
  std::vector<Tokens> sequences;
  std::vector<std::string> names;
  for (const auto& [name, greedy] : golden_["greedy"].items()) {
    names.push_back(name);
    sequences.push_back(golden_["texts"][name]["ids"].get<Tokens>());
    for (const int32_t id : greedy["ids"].get<Tokens>()) sequences.back().push_back(id);
  }
  const auto rows = paged_logits(*decoder_, sequences, {66, 1});
  for (size_t i = 0; i < names.size(); ++i) {
    const json& greedy = golden_["greedy"][names[i]];
    const size_t prompt = sequences[i].size() - greedy["ids"].size();
    const auto logprobs = sequence_logprobs(rows[i], sequences[i]);
    for (size_t t = 0; t < greedy["ids"].size(); ++t) {
      const auto& row = rows[i][prompt + t - 1];
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), greedy["ids"][t].get<int32_t>())
          << names[i] << " step " << t;
      EXPECT_NEAR(logprobs[prompt + t - 1], greedy["logprobs"][t].get<double>(), 2e-4) << names[i] << " step " << t;
    }
  }
}

}  // namespace
}  // namespace tandem
