// Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300) and the estimators that share its dataflow:
// whatever needs no critic.
#pragma once

#include "programs/program.h"

namespace tandem {

class Grpo final : public Program {
 public:
  Grpo(const ProgramOptions& options, const Roles& roles)
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
