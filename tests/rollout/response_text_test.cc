#include "rollout/response_text.h"

#include <gtest/gtest.h>

#include "checkpoint/scratch_folder.h"
#include "support/bigram.h"

namespace tandem {
namespace {

// Ids 0..255 are bytes, so any text can be pushed byte by byte.
const Tokenizer& bytes() {
  static const ScratchFolder folder;
  static const Tokenizer tokenizer = [] {
    write_bigram_model(folder.path(), {});
    return Tokenizer::from_folder(folder.path());
  }();
  return tokenizer;
}

struct Outcome {
  std::string text, joined;
  size_t pushed = 0;  // bytes until a stop was found, or all
};

bool starts_inside_character(const std::string& piece) {
  return !piece.empty() && (static_cast<unsigned char>(piece.front()) & 0xC0) == 0x80;
}

Outcome feed(const std::string& all, const std::vector<std::string>& stops) {
  ResponseText text(bytes().stream(), stops);
  Outcome out;
  for (const char byte : all) {
    text.push(static_cast<unsigned char>(byte));
    ++out.pushed;
    const bool stopped = text.cut_at_stop();
    const std::string piece = text.take_piece();
    EXPECT_FALSE(starts_inside_character(piece));
    out.joined += piece;
    if (stopped) break;
  }
  out.joined += text.finish();
  out.text = text.text();
  EXPECT_EQ(out.joined, out.text) << "the pieces are the text";
  return out;
}

TEST(ResponseText, WithoutStopsAllComesThrough) {
  EXPECT_EQ(feed("plain text", {}).text, "plain text");
  EXPECT_EQ(feed("h\u00e9llo \u4f60\u597d \U0001F600!", {}).text, "h\u00e9llo \u4f60\u597d \U0001F600!");
}

TEST(ResponseText, AStopOverTokenBordersNeverLeaks) {
  const Outcome out = feed("the answer END of it", {"END"});
  EXPECT_EQ(out.text, "the answer ");
  EXPECT_EQ(out.pushed, 14U) << "found with its last byte";
}

TEST(ResponseText, AnAlmostStopIsShownInTheEnd) {
  EXPECT_EQ(feed("spend it: EN", {"END"}).text, "spend it: EN");
  EXPECT_EQ(feed("EENEND", {"END"}).text, "EEN");
}

TEST(ResponseText, TheEarliestOfSeveralStopsCounts) {
  EXPECT_EQ(feed("a\nb</s>", {"</s>", "\n"}).text, "a");
  EXPECT_EQ(feed("xabcd", {"abcd", "bc"}).text, "xa") << "bc is complete first";
  EXPECT_EQ(feed("stop", {"stop"}).text, "");
}

TEST(ResponseText, StopsInOtherAlphabets) {
  EXPECT_EQ(feed("\u4f60\u597d\u3002\u518d\u89c1", {"\u3002"}).text, "\u4f60\u597d");
  EXPECT_EQ(feed("\u4f60\u597d\u597d", {"\u597d\u3002"}).text, "\u4f60\u597d\u597d");
}

TEST(ResponseText, ACharacterThatNeverEndsBecomesTheReplacement) {
  EXPECT_EQ(feed("ok\xE4\xBD", {}).text, "ok\uFFFD");
  EXPECT_EQ(feed("ok\xE4\xBD", {"never"}).text, "ok\uFFFD");
}

TEST(ResponseText, IgnoredStopsStayAndLaterOnesCount) {
  const std::vector<std::string> stops{"ab"};
  ResponseText text(bytes().stream(), stops);
  for (const char byte : std::string("1ab2a")) text.push(byte), text.ignore_stops();
  text.push('b');  // began before, is complete only now
  EXPECT_TRUE(text.cut_at_stop());
  EXPECT_EQ(text.text(), "1ab2");
}

}  // namespace
}  // namespace tandem
