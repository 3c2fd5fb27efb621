#include "preflight/keys.h"

#include <fmt/format.h>

#include "config/describe.h"

namespace tandem {

Finding check_keys(const std::optional<LoadedConfig>& loaded, const std::string& error) {
  Finding finding{"keys", Verdict::kPass, "", "", {}};
  if (!loaded) {
    finding.worsen(Verdict::kFail, error,
                   "correct the key; tandem train --print-config shows all of them with their meaning");
    return finding;
  }
  const Config& config = loaded->config;
  const DerivedSizes sizes = derived_sizes(config);
  finding.why =
      fmt::format("{} samples and {} optimizer steps a step", sizes.samples_per_step, sizes.optimizer_steps_per_step);
  for (const auto& [name, value] : describe_sizes(config))
    finding.details.push_back(fmt::format("{:<26}{}", name, value));
  const int64_t ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes;
  if (ranks > 1)
    finding.details.push_back(fmt::format(
        "{:<26}{:.1f} prompts drawn, {:.1f} samples of a mini-batch trained", fmt::format("a rank of {}", ranks),
        static_cast<double>(sizes.prompts_per_step) / static_cast<double>(ranks),
        static_cast<double>(sizes.samples_per_mini_batch) / static_cast<double>(ranks)));
  for (const std::string& note : loaded->notes) finding.details.push_back(note);
  for (const std::string& warning : loaded->warnings)
    finding.worsen(Verdict::kWarn, warning, "change it unless it is meant");
  return finding;
}

}  // namespace tandem
