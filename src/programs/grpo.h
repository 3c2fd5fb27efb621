// Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300) and the estimators that share its dataflow:
// whatever needs no critic.
#pragma once

#include "programs/program.h"

namespace tandem {

class Grpo final : public Program {
 public:
  Grpo(const ProgramOptions& options, const Roles& roles)
      : options_(options), roles_(roles), experience_(options, roles) {}

  StepResult step(const PromptSource& prompts, int64_t steps_done) override;
  void set_prompts_per_step(size_t prompts) override { experience_.set_prompts_per_step(prompts); }
  double kl_coefficient() const override { return experience_.kl_coefficient(); }
  void restore(double kl_coefficient) override { experience_.restore(kl_coefficient); }

 private:
  ProgramOptions options_;
  Roles roles_;
  Experience experience_;
};

}  // namespace tandem
