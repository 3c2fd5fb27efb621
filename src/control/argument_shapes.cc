#include "control/argument_shapes.h"

#include <fmt/format.h>

namespace tandem {

std::string shape_text(const std::string& name, const LengthRange& range) {
  if (range.least >= range.most) return fmt::format("{}[{}]", name, range.most);
  return fmt::format("{}[{}..{}]", name, range.least, range.most);
}

std::string shapes_of(const RolloutBatch& batch) {
  LengthRange prompts, responses, trained;
  uint32_t groups = 0;
  for (const Sample& sample : batch) {
    prompts.add(sample.prompt_length), responses.add(sample.response_length), trained.add(sample.trained_length);
    groups = std::max(groups, sample.group + 1);
  }
  return fmt::format("{} samples of {} prompts: {}, {}, {}", batch.size(), groups, shape_text("prompt_ids", prompts),
                     shape_text("response_ids", responses), shape_text("trained", trained));
}

std::string shapes_of(const std::vector<PromptPtr>& prompts) {
  LengthRange lengths;
  for (const PromptPtr& prompt : prompts) lengths.add(prompt->token_ids.size());
  return fmt::format("{} prompts: {}", prompts.size(), shape_text("prompt_ids", lengths));
}

}  // namespace tandem
