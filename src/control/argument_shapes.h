// What a call's arguments look like, for people who hold it (control/breakpoints.h): how many, and the lengths of their
// tokens. Of a type that is not among these nothing is said.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/types.h"

namespace tandem {

struct LengthRange {
  size_t least = SIZE_MAX, most = 0;
  void add(size_t length) { least = std::min(least, length), most = std::max(most, length); }
};
std::string shape_text(const std::string& name, const LengthRange& range);  // "prompt_ids[83..101]"

template <class T>
std::string shapes_of(const T&) {
  return {};
}
std::string shapes_of(const RolloutBatch& batch);
std::string shapes_of(const std::vector<PromptPtr>& prompts);

}  // namespace tandem
