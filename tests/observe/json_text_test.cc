#include "observe/json_text.h"

#include <gtest/gtest.h>

#include "observe/utf8.h"

namespace tandem {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonText, EscapesWhatMustBe) {
  EXPECT_EQ(quoted("a\"b\\c\n\r\t\x01\x1f/"), R"("a\"b\\c\n\r\t\u0001\u001f/")");
  EXPECT_EQ(quoted(std::string_view("\0", 1)), R"("\u0000")");
  EXPECT_EQ(quoted("h\u00e9 \u4e2d \U0001F600"), "\"h\u00e9 \u4e2d \U0001F600\"");
}

TEST(JsonText, BrokenUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(quoted("a\xFF"
                   "b"),
            "\"a\uFFFDb\"");
  EXPECT_EQ(quoted("\xE4\xB8"), "\"\uFFFD\"");  // cut character: one
  EXPECT_EQ(quoted("\xE4\xB8"
                   "x"),
            "\"\uFFFDx\"");
  EXPECT_EQ(quoted("\xC0\x80"), "\"\uFFFD\uFFFD\"");                      // overlong
  EXPECT_EQ(quoted("\xED\xA0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");            // surrogate
  EXPECT_EQ(quoted("\xF4\x90\x80\x80"), "\"\uFFFD\uFFFD\uFFFD\uFFFD\"");  // past U+10FFFF
  // The example of Unicode 15, table 3-11: 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64.
  EXPECT_EQ(quoted("a\xF1\x80\x80\xE1\x80\xC2"
                   "b\x80"
                   "c\x80\xBF"
                   "d"),
            "\"a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd\"");
}

TEST(JsonText, FloatsAreShortestAsFloats) {
  std::string out;
  append_json_number(out, 0.1f);
  out += ' ';
  append_json_number(out, -1.5f);
  out += ' ';
  append_json_number(out, static_cast<double>(0.1f));
  EXPECT_EQ(out, "0.1 -1.5 0.10000000149011612");
}

TEST(Utf8, Widths) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\u4e2d\u6587"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);  // combining acute
  EXPECT_EQ(display_width("\U0001F600"), 2);
  EXPECT_EQ(display_width("\u2588\u2591"), 2);
  EXPECT_EQ(display_width("\xFF"), 1);
}

TEST(Utf8, FitsWholeCharactersOnly) {
  EXPECT_EQ(fit_to_width("a\u4e2d"
                         "b",
                         2),
            "a");
  EXPECT_EQ(fit_to_width("a\u4e2d"
                         "b",
                         3),
            "a\u4e2d");
  EXPECT_EQ(fit_to_width("e\u0301x", 1), "e\u0301");
  EXPECT_EQ(fit_to_width("abc", 0), "");
  EXPECT_EQ(fit_to_width("abc", -4), "");
}

}  // namespace
}  // namespace tandem
