#include "serve/tool_calls.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

// The text whole, or a byte at a time.
ToolPiece scanned(const std::string& text, size_t step) {
  ToolCallScanner scanner;
  ToolPiece all;
  const auto add = [&](const ToolPiece& piece) {
    all.content += piece.content;
    all.calls.insert(all.calls.end(), piece.calls.begin(), piece.calls.end());
  };
  for (size_t i = 0; i < text.size(); i += step) add(scanner.push(text.substr(i, step)));
  add(scanner.finish());
  return all;
}

void expect_scanned(const std::string& text, const std::string& content,
                    const std::vector<std::pair<std::string, std::string>>& calls) {
  for (const size_t step : {size_t{1}, size_t{3}, text.size() + 1}) {
    const ToolPiece found = scanned(text, step);
    EXPECT_EQ(found.content, content) << text;
    ASSERT_EQ(found.calls.size(), calls.size()) << text;
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(found.calls[i].name, calls[i].first);
      EXPECT_EQ(found.calls[i].arguments, calls[i].second);
    }
  }
}

TEST(ToolCalls, AreFoundInTheText) {
  expect_scanned("no call <tool> at all <", "no call <tool> at all <", {});
  expect_scanned("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"</b>\"]}}\n</tool_call>", "",
                 {{"f", R"({"x":[1,"</b>"]})"}});
  expect_scanned(
      "Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": "
      "\"g\"}</tool_call>",
      "Let me see.\n", {{"f", "{}"}, {"g", "{}"}});
}

TEST(ToolCalls, WhatIsNoneStaysText) {
  expect_scanned("<tool_call>not json</tool_call> b", "<tool_call>not json</tool_call> b", {});
  expect_scanned("<tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": 5}</tool_call>", {});
  expect_scanned("<tool_call>{\"name\": \"f\", \"argu", "<tool_call>{\"name\": \"f\", \"argu", {});
  expect_scanned("<tool_call>{\"name\": \"f\"}", "", {{"f", "{}"}});
}

}  // namespace
}  // namespace tandem
