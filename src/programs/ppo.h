// Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with a critic and generalised advantages.
#pragma once

#include "programs/program.h"

namespace tandem {

class Ppo final : public Program {
 public:
  // Roles: critic and token_advantages are needed.
  Ppo(const ProgramOptions& options, const Roles& roles)
      : options_(options), roles_(roles), experience_(options, roles) {}

  StepResult step(const PromptSource& prompts) override;
  ProgramState state() const override { return {experience_.kl().state(), num_steps_}; }
  void restore(const ProgramState& state) override;

 private:
  ProgramOptions options_;
  Roles roles_;
  Experience experience_;
  int64_t num_steps_ = 0;
};

}  // namespace tandem
