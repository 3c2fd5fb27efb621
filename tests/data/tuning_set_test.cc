// Rows become samples: what is prompt, what is learnt, what truncation leaves, what is refused.
#include "data/tuning_set.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

// A token a character: the role's first letter, the content, and "." to end the turn; the assistant's content and "."
// are learnt, but for those of messages before `first`.
MaskedChat by_character(const std::vector<Message>& messages, size_t first) {
  MaskedChat chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    for (const char c : m.role.substr(0, 1) + m.content + ".") {
      chat.ids.push_back(c);
      chat.mask.push_back(m.role == "assistant" && i >= first);
    }
    chat.mask[chat.ids.size() - m.content.size() - 2] = 0;
  }
  return chat;
}

class Tuning : public testing::Test {
 protected:
  ~Tuning() override { fs::remove(path_); }
  TuningSet load(const std::vector<std::string>& rows, TuningSetOptions options = {}) {
    std::ofstream out(path_);
    for (const std::string& row : rows) out << row << "\n";
    out.close();
    options.files = {path_};
    return TuningSet(options, by_character);
  }
  std::string refusal(const std::string& row, TuningSetOptions options = {}) {
    try {
      load({row}, options);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  static std::string text(const Ids& ids) { return {ids.begin(), ids.end()}; }

  const fs::path path_ = fs::path(testing::TempDir()) / "tuning_set_test.jsonl";
};

const std::string kTwoTurns = R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "xy"},
 {"role": "user", "content": "q"}, {"role": "assistant", "content": "z"}, {"role": "user", "content": "r"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST_F(Tuning, AConversationIsCutAtItsFirstLearntToken) {
  const TuningSet set = load({one_line(kTwoTurns), R"({"prompt": "p", "response": "x"})",
                              R"({"prompt": [{"role": "system", "content": "s"}], "response": "x"})"});
  ASSERT_EQ(set.size(), 3u);
  const TrajectoryPtr two = set.all()[0];
  EXPECT_EQ(set.longest(), 13u);
  EXPECT_EQ(text(two->prompt->token_ids), "up.a");
  EXPECT_EQ(text(two->response_ids), "xy.uq.az.");  // the last turn teaches nothing
  EXPECT_EQ(two->response_mask, (std::vector<uint8_t>{1, 1, 1, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(text(set.all()[1]->prompt->token_ids) + "|" + text(set.all()[1]->response_ids), "up.a|x.");
  EXPECT_EQ(text(set.all()[2]->prompt->token_ids) + "|" + text(set.all()[2]->response_ids), "ss.a|x.");
}

TEST_F(Tuning, PairsShareTheirPromptAndScoreTheLastReplyOnly) {
  TuningSetOptions options;
  options.pairs = true;
  const TuningSet set = load({R"({"prompt": "p", "chosen": "good", "rejected": "bad"})",
                              one_line(R"({"prompt": [{"role": "user", "content": "p"},
                                  {"role": "assistant", "content": "x"}, {"role": "user", "content": "q"}],
                                  "chosen": "g", "rejected": "b"})")},
                             options);
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.samples_per_row(), 2u);
  const std::vector<TrajectoryPtr> first = set.take({0}), second = set.take({1});
  EXPECT_EQ(first[0]->prompt, first[1]->prompt);
  EXPECT_EQ(text(first[0]->response_ids) + text(first[1]->response_ids), "good.bad.");
  EXPECT_EQ(text(second[0]->prompt->token_ids), "up.ax.uq.a");
  EXPECT_EQ(text(second[1]->response_ids), "b.");
  EXPECT_EQ(set.take({1, 0})[2], first[0]);
}

// left keeps the last tokens, right the first.
TEST_F(Tuning, Truncation) {
  TuningSetOptions options;
  options.max_length = 6;
  EXPECT_NE(refusal(R"({"prompt": "long", "response": "xyz"})", options).find("data.max_length=6"), std::string::npos);
  options.truncation = Truncation::kRight;
  const TuningSet right =
      load({R"({"prompt": "p", "response": "xyz"})", R"({"prompt": "longer", "response": "x"})"}, options);
  EXPECT_EQ(right.size(), 1u);
  EXPECT_EQ(right.num_dropped(), 1u);  // no token of its reply is left
  EXPECT_EQ(text(right.all()[0]->response_ids), "xy");
  options.truncation = Truncation::kLeft;
  const TuningSet left =
      load({R"({"prompt": "p", "response": "xyz"})", R"({"prompt": "p", "response": "vwxyz"})"}, options);
  EXPECT_EQ(text(left.all()[0]->prompt->token_ids) + "|" + text(left.all()[0]->response_ids), ".a|xyz.");
  // Nothing predicts the first token, so it is prompt.
  EXPECT_EQ(text(left.all()[1]->prompt->token_ids) + "|" + text(left.all()[1]->response_ids), "v|wxyz.");
}

// A pair is scored at the ends of its replies.
TEST_F(Tuning, APairKeepsTheEndsOfItsReplies) {
  TuningSetOptions options;
  options.pairs = true;
  options.max_length = 6;
  const std::vector<std::string> rows = {R"({"prompt": "p", "chosen": "x", "rejected": "y"})",
                                         R"({"prompt": "p", "chosen": "x", "rejected": "vwxyz"})"};
  options.truncation = Truncation::kRight;
  testing::internal::CaptureStderr();
  const TuningSet right = load(rows, options);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(right.size(), 1u);
  EXPECT_EQ(right.num_dropped(), 1u);
  EXPECT_NE(told.find("1 of 2 rows dropped: data.truncation=right"), std::string::npos) << told;
  EXPECT_EQ(text(right.all()[1]->response_ids), "y.");
  options.truncation = Truncation::kLeft;
  const TuningSet left = load(rows, options);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(text(left.all()[2]->prompt->token_ids) + "|" + text(left.all()[2]->response_ids), "up.a|x.");
  EXPECT_EQ(text(left.all()[3]->prompt->token_ids) + "|" + text(left.all()[3]->response_ids), "v|wxyz.");
}

TEST_F(Tuning, RefusesNamingRowAndColumn) {
  EXPECT_NE(refusal(R"({"text": "x"})").find("data.messages_key"), std::string::npos);
  EXPECT_NE(refusal(R"({"prompt": "x"})").find("data.response_key"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": [{"role": "user", "content": "x"}]})").find("row 0"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages": "x"})").find("messages"), std::string::npos);
  EXPECT_NE(refusal(R"({"prompt": "p", "response": "x", "tools": [{}]})").find("tools"), std::string::npos);
  TuningSetOptions options;
  options.pairs = true;
  EXPECT_NE(refusal(R"({"prompt": "x", "chosen": "a"})", options).find("data.rejected_key"), std::string::npos);
  EXPECT_NE(refusal(R"({"prompt": "x", "chosen": "a", "rejected": [1]})", options).find("array"), std::string::npos);
}

TEST_F(Tuning, TheFingerprintIsOfTheTokens) {
  const std::string a = R"({"prompt": "p", "response": "x"})", b = R"({"prompt": "p", "response": "y"})";
  EXPECT_EQ(load({a, b}).fingerprint(), load({a, b}).fingerprint());
  EXPECT_NE(load({a, b}).fingerprint(), load({b, a}).fingerprint());
  EXPECT_NE(load({a}).fingerprint(), load({a, b}).fingerprint());
}

}  // namespace
}  // namespace tandem
