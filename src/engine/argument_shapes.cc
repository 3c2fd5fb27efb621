#include "engine/argument_shapes.h"

#include <algorithm>
#include <cstdint>

namespace tandem {
namespace {

// Appends ", name[least..most]" of a length that each element has; nothing where all are 0.
template <class Elements, class Length>
void append_lengths(std::string& text, const char* name, const Elements& elements, const Length& length) {
  size_t least = SIZE_MAX, most = 0;
  for (const auto& element : elements) least = std::min(least, length(element)), most = std::max(most, length(element));
  if (most == 0) return;
  text += (text.back() == ':' ? " " : ", ") + std::string(name) + "[";
  text += least == most ? std::to_string(most) + "]" : std::to_string(least) + ".." + std::to_string(most) + "]";
}

}  // namespace

std::string shapes_of(const std::vector<DrawTask>& tasks) {
  std::string text = std::to_string(tasks.size()) + " prompts:";
  append_lengths(text, "prompt_ids", tasks, [](const DrawTask& task) { return task.prompt->token_ids.size(); });
  append_lengths(text, "samples", tasks, [](const DrawTask& task) { return task.samples.size(); });
  return text;
}

std::string shapes_of(const std::vector<SampleName>& names) {
  std::string text = std::to_string(names.size()) + " samples:";
  append_lengths(text, "prompt_ids", names, [](const SampleName& name) -> size_t { return name.prompt_length; });
  append_lengths(text, "response_ids", names, [](const SampleName& name) -> size_t { return name.response_length; });
  return text;
}

}  // namespace tandem
