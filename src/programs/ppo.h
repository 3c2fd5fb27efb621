// Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with a critic and generalised advantages.
#pragma once

#include "programs/program.h"

namespace tandem {

class Ppo final : public Program {
 public:
  // Roles: critic and token_advantages are needed.
  Ppo(const ProgramOptions& options, const Roles& roles)
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
