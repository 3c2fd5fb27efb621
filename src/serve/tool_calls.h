// Tool calls in a model's text, of the form that most chat templates ask for (Hermes, Qwen):
//   <tool_call>{"name": "...", "arguments": {...}}</tool_call>
// Found while the text grows. What looks like a call and is none stays text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
};

struct ToolPiece {
  std::string content;  // text that is no call, in order
  std::vector<ToolCall> calls;
};

class ToolCallScanner {
 public:
  ToolPiece push(std::string_view text);
  ToolPiece finish();  // what was held back
  size_t num_calls() const { return num_calls_; }

 private:
  void scan(ToolPiece& out);

  std::string held_;
  size_t num_calls_ = 0;
};

}  // namespace tandem
