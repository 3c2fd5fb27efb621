#include "serve/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

std::optional<ToolCall> parse_call(std::string_view text) {
  const json call = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return std::nullopt;
  const json arguments = call.value("arguments", json::object());
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{call["name"], arguments.dump()};
}

// How much of the end of `text` may be the beginning of kOpen.
size_t begun_tag(std::string_view text) {
  for (size_t length = std::min(text.size(), kOpen.size() - 1); length > 0; --length)
    if (text.ends_with(kOpen.substr(0, length))) return length;
  return 0;
}

}  // namespace

void ToolCallScanner::scan(ToolPiece& out) {
  for (;;) {
    if (num_calls_ > 0) held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));  // between calls
    const size_t open = held_.find(kOpen);
    if (open == std::string::npos) {
      const size_t shown = held_.size() - begun_tag(held_);
      out.content += held_.substr(0, shown);
      held_.erase(0, shown);
      return;
    }
    out.content += held_.substr(0, open);
    held_.erase(0, open);
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) return;
    const auto inner = std::string_view(held_).substr(kOpen.size(), close - kOpen.size());
    if (auto call = parse_call(inner)) {
      out.calls.push_back(std::move(*call));
      ++num_calls_;
    } else {
      out.content += held_.substr(0, close + kClose.size());
    }
    held_.erase(0, close + kClose.size());
  }
}

ToolPiece ToolCallScanner::push(std::string_view text) {
  held_ += text;
  ToolPiece out;
  scan(out);
  return out;
}

ToolPiece ToolCallScanner::finish() {
  ToolPiece out;
  // A call that ends with the reply needs no closing tag.
  if (held_.starts_with(kOpen))
    if (auto call = parse_call(std::string_view(held_).substr(kOpen.size()))) {
      out.calls.push_back(std::move(*call));
      ++num_calls_;
      held_.clear();
    }
  out.content = std::exchange(held_, {});
  return out;
}

}  // namespace tandem
