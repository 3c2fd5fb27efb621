// What every training program is: a step over the roles, and the little it remembers from step to step.
#pragma once

#include <memory>

#include "engine/critic.h"
#include "engine/reference.h"
#include "engine/token_advantages.h"
#include "programs/advantage.h"
#include "programs/collector.h"
#include "programs/kl_controller.h"

namespace tandem {

struct ProgramOptions {
  CollectOptions collect;
  KlControlOptions kl;
  bool by_token = false;       // advantages differ from token to token: Roles::token_advantages estimates them
  AdvantageOptions advantage;  // otherwise
  bool correct_rollout = false;
  bool squared_probs = false;  // optimal_token_baseline
  int64_t critic_warmup = 0;   // first steps, in which only the critic learns
};

// Null where the algorithm needs none. All must outlive the program.
struct Roles {
  WorkerGroup<Engine>& actor;
  WorkerGroup<RewardWorker>& reward;
  WorkerGroup<Reference>* reference = nullptr;
  WorkerGroup<TokenAdvantages>* token_advantages = nullptr;
  WorkerGroup<Critic>* critic = nullptr;
};

struct StepResult {
  ScoredBatch batch;
  Metrics metrics;  // of the update and what led to it
};

struct ProgramState {
  double kl_coef = 0;
  int64_t num_steps = 0;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual StepResult step(const PromptSource& prompts) = 0;
  virtual ProgramState state() const = 0;
  virtual void restore(const ProgramState& state) = 0;
};

// With a critic PPO, else GRPO and the estimators that share its dataflow.
std::unique_ptr<Program> make_program(const ProgramOptions& options, const Roles& roles);

// Collects, corrects and compares with the reference: what comes before the advantages in every program.
class Experience {
 public:
  Experience(const ProgramOptions& options, const Roles& roles)
      : options_(options), roles_(roles), collector_(options.collect, roles.actor, roles.reward), kl_(options.kl) {}

  // Metrics are added to `metrics`. Rewards are without KL; kl_coef() is what it costs this step.
  ScoredBatch collect(const PromptSource& prompts, Metrics& metrics);
  double kl_coef() const { return kl_coef_; }

  // Advantages token by token, KL taken off the rewards.
  void estimate_by_token(RolloutBatch& batch, Metrics& metrics) const;

  KlController& kl() { return kl_; }
  const KlController& kl() const { return kl_; }

 private:
  ProgramOptions options_;
  Roles roles_;
  Collector collector_;
  KlController kl_;
  double kl_coef_ = 0;
};

}  // namespace tandem
