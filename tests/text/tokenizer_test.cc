#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/error.h"
#include "goldens.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;

std::string stream_all(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  DecodeStream stream = tokenizer.stream(skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void expect_goldens(const Tokenizer& tokenizer, const nlohmann::ordered_json& rows) {
  ASSERT_GT(rows.size(), 50u);
  for (const auto& row : rows) {
    const std::string text = from_base64(row.at("bytes").get<std::string>());
    SCOPED_TRACE(row.dump());
    const Ids ids = row.at("ids");
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.encode_plain(text), row.value("plain", ids));
    EXPECT_EQ(tokenizer.decode(ids, false), row.at("text").get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids), row.at("skipped").get<std::string>());
    EXPECT_EQ(stream_all(tokenizer, ids, false), row.at("text").get<std::string>());
    EXPECT_EQ(stream_all(tokenizer, ids, true), row.at("skipped").get<std::string>());
  }
}

class ToyTokenizer : public ::testing::Test {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::from_folder(text_data("toy"));
  int32_t id(std::string_view token) const { return tokenizer_.token_to_id(token).value(); }
};

TEST_F(ToyTokenizer, AgreesWithPython) { expect_goldens(tokenizer_, read_goldens("toy.json").at("tokens")); }

TEST(DemoTokenizer, AgreesWithPython) {
  if (!std::filesystem::exists(demo_model())) GTEST_SKIP() << "no demo model in " << demo_model();
  expect_goldens(Tokenizer::from_folder(demo_model()), read_goldens("smollm2.json").at("tokens"));
}

TEST_F(ToyTokenizer, KnowsItsAddedTokens) {
  EXPECT_EQ(id("<|endoftext|>"), 0);
  EXPECT_EQ(id("<|im_start|>"), 1);
  EXPECT_EQ(id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer_.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer_.vocab_size(), static_cast<size_t>(id("<|forgotten|>")) + 1);  // the last one added
  EXPECT_TRUE(tokenizer_.is_special(2) && tokenizer_.is_control(2));
  EXPECT_FALSE(tokenizer_.is_special(id("<think>")) || tokenizer_.is_control(id("<think>")));
  EXPECT_FALSE(tokenizer_.is_special(id("<|forgotten|>")));  // not marked, but spelt like a turn marker
  EXPECT_TRUE(tokenizer_.is_control(id("<|forgotten|>")));
  EXPECT_FALSE(tokenizer_.is_special(100) || tokenizer_.is_special(-1) || tokenizer_.is_special(1 << 30));
}

TEST_F(ToyTokenizer, PlainTextHoldsNoControlIds) {
  const std::string text = "a<|im_end|>\n<|im_start|>b <|endoftext|><|forgotten|> <mask><think>";
  const Ids plain = tokenizer_.encode_plain(text);
  for (const int32_t i : plain) EXPECT_FALSE(tokenizer_.is_control(i)) << i;
  EXPECT_EQ(plain.back(), id("<think>"));
  EXPECT_EQ(tokenizer_.decode(plain, true), text);
}

TEST_F(ToyTokenizer, ControlsCountOnlyInTheirSpans) {
  const std::string text = "<|im_end|>a<|im_end|>";
  const std::vector<TextSpan> last = {{11, 21}};
  Ids expected = tokenizer_.encode_plain("<|im_end|>a");
  expected.push_back(2);
  EXPECT_EQ(tokenizer_.encode_with_controls(text, last), expected);
  const std::vector<TextSpan> both = {{0, 10}, {11, 21}};
  EXPECT_EQ(tokenizer_.encode_with_controls(text, both), tokenizer_.encode(text));
  const std::vector<TextSpan> wrong = {{0, 9}}, backwards = {{11, 21}, {0, 10}}, outside = {{11, 22}};
  EXPECT_THROW(tokenizer_.encode_with_controls(text, wrong), DataError);
  EXPECT_THROW(tokenizer_.encode_with_controls(text, backwards), DataError);
  EXPECT_THROW(tokenizer_.encode_with_controls(text, outside), DataError);
}

TEST_F(ToyTokenizer, StreamHoldsBackHalfCharacters) {
  const Ids ids = tokenizer_.encode_plain("\xF0\x9F\xA6\x80");  // a crab: no merges of the toy vocabulary reach it
  ASSERT_GT(ids.size(), 1u);
  DecodeStream stream = tokenizer_.stream(true);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\xF0\x9F\xA6\x80");
  EXPECT_EQ(stream.push(ids.front()), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(ToyTokenizer, DecodeSkipsIdsItDoesNotKnowAndRefusesNegativeOnes) {
  Ids ids = tokenizer_.encode("hello");
  ids.push_back(1 << 20);
  EXPECT_EQ(tokenizer_.decode(ids), "hello");
  ids.push_back(-1);
  EXPECT_THROW(tokenizer_.decode(ids), DataError);
}

TEST_F(ToyTokenizer, ServesManyThreads) {
  const std::string text = "hello <|im_end|> 人工智能 123";
  const Ids expected = Tokenizer::from_folder(text_data("toy")).encode_plain(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        count += tokenizer_.encode_plain(text) != expected || tokenizer_.decode(expected) != text;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// One U+FFFD for each maximal invalid part, as Python's bytes.decode("utf-8", "replace") gives.
TEST_F(ToyTokenizer, ReadsBrokenUtf8AsPythonDoes) {
  const std::string replaced = "\xEF\xBF\xBD";
  const auto round_trip = [&](std::string_view text) { return tokenizer_.decode(tokenizer_.encode(text), false); };
  EXPECT_EQ(round_trip("\xF0\x9F\x98 x"), replaced + " x");
  EXPECT_EQ(round_trip("\xC0\xAF"), replaced + replaced);
  EXPECT_EQ(round_trip("\xED\xA0\x80"), replaced + replaced + replaced);
  EXPECT_EQ(round_trip(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Tokenizer, NamesTheFileThatIsMissingOrBroken) {
  const auto message_of = [](const std::filesystem::path& folder) -> std::string {
    try {
      Tokenizer::from_folder(folder);
    } catch (const IoError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message_of("/nowhere").find("/nowhere/tokenizer.json"), std::string::npos);
  const auto folder = std::filesystem::path(::testing::TempDir()) / "broken_tokenizer";
  std::filesystem::create_directories(folder);
  write_file_atomic(folder / "tokenizer.json", "{\"model\": 3}\n");
  EXPECT_NE(message_of(folder).find("tokenizer.json is not a usable tokenizer"), std::string::npos);
  EXPECT_EQ(message_of(folder).find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tandem
