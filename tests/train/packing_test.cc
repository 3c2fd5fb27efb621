// Packed batches: where their tokens lie, how they are cut, and that their log-probs are those of the paged path.
#include "train/packing.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "train/policy_batch.h"

namespace tandem {
namespace {

std::vector<std::array<int32_t, 2>> writes_of(const PackedBatch& packed) {
  std::vector<std::array<int32_t, 2>> all;
  for (const auto& write : packed.tokens.writes) all.push_back({write.token, write.slot});
  return all;
}

// A prompt of 17 tokens and responses of 2, 1 and 3: the first 16 keys are shared, the 17th is written again into a
// block of each response that has inputs of its own. A response's last token is never an input.
TEST(Packing, SharesWholeBlocksOfAPrompt) {
  Tokens prompt(17);
  for (int i = 0; i < 17; ++i) prompt[i] = i;
  const Tokens a = {50, 51}, b = {60}, c = {70, 71, 72};
  const std::vector<PackItem> items = {{prompt, a}, {prompt, b}, {prompt, c}};
  const PackedBatch packed = pack(items);

  Tokens ids = prompt;
  ids.insert(ids.end(), {50, 70, 71});
  EXPECT_EQ(packed.tokens.ids, ids);
  EXPECT_EQ(packed_tokens(items), 20);
  Tokens positions = prompt;
  positions.insert(positions.end(), {17, 17, 18});
  EXPECT_EQ(packed.tokens.positions, positions);

  ASSERT_EQ(packed.tokens.attention.spans.size(), 3u);
  const auto table = [&](int span, int index) {
    const auto& attention = packed.tokens.attention;
    return attention.block_tables[attention.spans[span].first_block + index];
  };
  EXPECT_EQ(table(1, 0), table(0, 0));
  EXPECT_EQ(table(2, 0), table(0, 0));
  EXPECT_EQ((std::set<int32_t>{table(0, 0), table(0, 1), table(1, 1), table(2, 1)}).size(), 4u);
  EXPECT_EQ(packed.tokens.num_blocks, 4);
  const auto& spans = packed.tokens.attention.spans;
  EXPECT_EQ(spans[1].first_token, 17);
  EXPECT_EQ(spans[1].num_tokens, 1);
  EXPECT_EQ(spans[1].first_position, 17);
  EXPECT_EQ(spans[2].first_token, 18);
  EXPECT_EQ(spans[2].num_tokens, 2);
  EXPECT_EQ(spans[2].first_position, 17);

  const auto all = writes_of(packed);
  const auto wrote = [&](int32_t token, int32_t slot) {
    return std::ranges::count(all, std::array<int32_t, 2>{token, slot}) == 1;
  };
  EXPECT_EQ(all.size(), 17u + 2 + 3);
  for (int32_t i = 0; i < 16; ++i) EXPECT_TRUE(wrote(i, table(0, 0) * 16 + i)) << i;
  EXPECT_TRUE(wrote(16, table(0, 1) * 16));
  EXPECT_TRUE(wrote(16, table(1, 1) * 16));
  EXPECT_TRUE(wrote(17, table(1, 1) * 16 + 1));
  EXPECT_TRUE(wrote(16, table(2, 1) * 16));
  EXPECT_TRUE(wrote(18, table(2, 1) * 16 + 1));
  EXPECT_TRUE(wrote(19, table(2, 1) * 16 + 2));

  // Targets: the three first tokens share the prompt's last row; then 51 after 50, 71 after 70, 72 after 71.
  std::vector<std::array<int32_t, 4>> targets;  // token that predicts, id, item, position
  for (const auto& t : packed.targets) targets.push_back({packed.rows[t.row], t.id, t.item, t.position});
  EXPECT_EQ(targets,
            (std::vector<std::array<int32_t, 4>>{
                {16, 50, 0, 0}, {16, 60, 1, 0}, {16, 70, 2, 0}, {17, 51, 0, 1}, {18, 71, 2, 1}, {19, 72, 2, 2}}));
  EXPECT_EQ(packed.rows, (std::vector<int32_t>{16, 17, 18, 19}));
}

// A GPU's head wants a row for each target: a prompt's last token is named once for each of its samples, and nothing
// else changes.
TEST(Packing, ARowForEachTarget) {
  Tokens prompt(17), other = {5, 6};
  for (int i = 0; i < 17; ++i) prompt[i] = i;
  const Tokens a = {50, 51}, b = {60}, c = {70, 71, 72}, d = {80, 81};
  const std::vector<PackItem> items = {{prompt, a}, {prompt, b}, {prompt, c}, {other, d}};
  const PackedBatch shared = pack(items), single = pack(items, /*row_per_target=*/true);

  EXPECT_EQ(single.tokens.ids, shared.tokens.ids);
  EXPECT_EQ(single.tokens.positions, shared.tokens.positions);
  EXPECT_EQ(single.tokens.num_blocks, shared.tokens.num_blocks);
  EXPECT_EQ(writes_of(single), writes_of(shared));
  EXPECT_EQ(single.tokens.attention.block_tables, shared.tokens.attention.block_tables);

  // Tokens: 0..16 the prompt, 17 = 50, 18 = 70, 19 = 71, then 20 = 5, 21 = 6, 22 = 80.
  std::vector<std::array<int32_t, 4>> targets;  // token that predicts, id, item, position
  for (size_t i = 0; i < single.targets.size(); ++i) {
    const PackTarget& t = single.targets[i];
    EXPECT_EQ(t.row, static_cast<int32_t>(i));
    targets.push_back({single.rows[t.row], t.id, t.item, t.position});
  }
  EXPECT_EQ(targets, (std::vector<std::array<int32_t, 4>>{{16, 50, 0, 0},
                                                          {17, 51, 0, 1},
                                                          {16, 60, 1, 0},
                                                          {16, 70, 2, 0},
                                                          {18, 71, 2, 1},
                                                          {19, 72, 2, 2},
                                                          {21, 80, 3, 0},
                                                          {22, 81, 3, 1}}));
  EXPECT_EQ(single.rows.size(), 8u);
  EXPECT_EQ(shared.rows.size(), 6u);
}

TEST(Packing, CutsIntoMicroBatches) {
  const Tokens p = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, q = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, r5(5, 7), r50(50, 7);
  // Tokens: 10 + 4 for the first of a prompt, 4 for each that shares it; equal prompts elsewhere in memory do not.
  const std::vector<PackItem> items = {{p, r5}, {p, r5}, {p, r5}, {q, r5}};
  using Ends = std::vector<size_t>;
  EXPECT_EQ(packed_tokens(items), 14 + 4 + 4 + 14);
  EXPECT_EQ(split_micro_batches(items, 36, 0), (Ends{4}));
  EXPECT_EQ(split_micro_batches(items, 35, 0), (Ends{3, 4}));
  EXPECT_EQ(split_micro_batches(items, 21, 0),
            (Ends{2, 3, 4}));  // the third pays for the prompt again: 14, and 14 more are too many
  EXPECT_EQ(split_micro_batches(items, 1, 0), (Ends{1, 2, 3, 4}));
  EXPECT_EQ(split_micro_batches(items, 1000, 3), (Ends{3, 4}));
  EXPECT_EQ(split_micro_batches(std::vector<PackItem>{{p, r50}, {p, r5}}, 20, 0), (Ends{1, 2}));
  EXPECT_TRUE(split_micro_batches({}, 20, 0).empty());
  // Pairs stay together: 14 + 4 for the first, then 4 + 14 for the second, which begins with the first's prompt.
  EXPECT_EQ(split_micro_batches(items, 36, 0, 2), (Ends{4}));
  EXPECT_EQ(split_micro_batches(items, 35, 0, 2), (Ends{2, 4}));
  EXPECT_EQ(split_micro_batches(items, 1, 0, 2), (Ends{2, 4}));
  EXPECT_EQ(split_micro_batches(items, 1000, 1, 2), (Ends{2, 4}));
}

class PackedLogprobs : public testing::TestWithParam<std::string> {
 protected:
  // Log-probs of tokens[prompt:] for each length of response, all sharing one prompt.
  std::vector<std::vector<float>> logprobs(const Tokens& tokens, size_t prompt, const std::vector<size_t>& lengths,
                                           int64_t max_tokens, double temperature = 1) {
    std::vector<PackItem> items;
    for (const size_t length : lengths)
      items.push_back({std::span(tokens).first(prompt), std::span(tokens).subspan(prompt, length)});
    return packed_logprobs(*decoder_, items, std::vector<double>(items.size(), temperature), max_tokens);
  }
  std::unique_ptr<Decoder> decoder_ = make_decoder(model_folder(GetParam()));
  nlohmann::json golden_ = read_json(model_folder(GetParam()) / "golden.json");
  std::vector<Tokens> sequences_ = golden_sequences(golden_);
};

TEST_P(PackedLogprobs, AgreeWithTheReference) {
  for (size_t s = 0; s < sequences_.size(); ++s) {
    if (sequences_[s].size() < 2) continue;
    const auto got = logprobs(sequences_[s], 1, {sequences_[s].size() - 1}, 4096)[0];
    const auto& wanted = golden_["sequences"][s]["logprobs"];
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i].get<double>(), 5e-5) << s << " " << i;
  }
}

// The promise on which rollout's log-probs replace a pass of their own: any prompt length, with or without neighbours
// that share the prompt, however cut, at any temperature.
TEST_P(PackedLogprobs, EqualThePagedPathBitwise) {
  const auto rows = paged_logits(*decoder_, sequences_, {7, 1});
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Tokens& tokens = sequences_[s];
    for (const double temperature : {1.0, 0.7}) {
      const auto paged = sequence_logprobs(rows[s], tokens, static_cast<float>(1.0 / temperature));
      for (const size_t prompt : {1, 6, 15, 16, 17, 32, 39}) {
        if (prompt >= tokens.size()) continue;
        const size_t rest = tokens.size() - prompt;
        const std::vector<size_t> lengths = {rest, 1, (rest + 1) / 2, rest};
        for (const int64_t max_tokens : {4096, 60})
          for (size_t i = 0; const auto& got : logprobs(tokens, prompt, lengths, max_tokens, temperature)) {
            ASSERT_EQ(got.size(), lengths[i++]);
            ASSERT_TRUE(same_bits(got, std::span(paged).subspan(prompt - 1, got.size())))
                << "sequence " << s << ", prompt " << prompt << ", response " << got.size();
          }
      }
    }
  }
}

// Training's own forward gives the very numbers that packed_logprobs gives: with them as old log-probs, the ratio of
// an on-policy update is exactly 1.
TEST_P(PackedLogprobs, OnPolicyRatioIsExactlyOne) {
  const auto golden = read_json(model_folder(GetParam()) / "golden_grad.json");
  auto samples = golden_samples(golden);
  for (auto& sample : samples) {
    auto trajectory = std::make_shared<Trajectory>(*sample.trajectory);
    Tokens tokens = trajectory->prompt->token_ids;
    tokens.insert(tokens.end(), trajectory->response_ids.begin(), trajectory->response_ids.end());
    const auto rows = paged_logits(*decoder_, {tokens}, {4, 1});
    const auto all = sequence_logprobs(rows[0], tokens, static_cast<float>(1.0 / trajectory->temperature));
    trajectory->rollout_logprobs.assign(all.end() - static_cast<int64_t>(trajectory->response_ids.size()), all.end());
    sample.trajectory = trajectory;
  }
  const Update update = gradient_of(*decoder_, golden_options(golden, "clip_kl_entropy_seq_sum"), samples);
  EXPECT_EQ(update.stats.ppo_kl, 0);
  EXPECT_EQ(update.stats.clip_fraction, 0);
  double advantages = 0;  // the loss of a token is minus its advantage
  for (const auto& sample : samples) advantages += sample.advantage * sample.trajectory->response_ids.size();
  EXPECT_NEAR(update.stats.pg_loss, -advantages / 6, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Tiny, PackedLogprobs, testing::ValuesIn(kTinyModels),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tandem
