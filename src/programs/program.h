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
  AdvantageOptions advantage;  // where Roles::token_advantages does not estimate them token by token
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

class Program {
 public:
  virtual ~Program() = default;
  // `steps_done`: steps of the run before this one.
  virtual StepResult step(const PromptSource& prompts, int64_t steps_done) = 0;
  // Of the steps from now on, instead of ProgramOptions::collect's.
  virtual void set_prompts_per_step(size_t prompts) = 0;
  // All that it remembers from step to step; a checkpoint holds it.
  virtual double kl_coefficient() const = 0;
  virtual void restore(double kl_coefficient) = 0;
};

// With a critic PPO, else GRPO and the estimators that share its dataflow.
std::unique_ptr<Program> make_program(const ProgramOptions& options, const Roles& roles);

// Collects, corrects and compares with the reference: what comes before the advantages in every program.
class Experience {
 public:
  Experience(const ProgramOptions& options, const Roles& roles)
      : options_(options), roles_(roles), collector_(options.collect, roles.actor, roles.reward), kl_(options.kl) {}

  struct Collected {
    ScoredBatch scored;  // rewards without KL
    double kl_coef;      // what KL costs this step
    Metrics metrics;
  };
  Collected collect(const PromptSource& prompts);

  // Advantages token by token, KL taken off the rewards.
  void estimate_by_token(Collected& collected) const;

  double kl_coefficient() const { return kl_.state(); }
  void restore(double kl_coefficient) { kl_.restore(kl_coefficient); }
  void set_prompts_per_step(size_t prompts) { collector_.set_prompts_per_step(prompts); }

 private:
  ProgramOptions options_;
  Roles roles_;
  Collector collector_;
  KlController kl_;
};

}  // namespace tandem
