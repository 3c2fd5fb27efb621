#include "reward/text.h"

namespace tandem {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != text.npos; begin = at + from.size()) {
    result += text.substr(begin, at - begin);
    result += to;
  }
  return result += text.substr(begin);
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace tandem
