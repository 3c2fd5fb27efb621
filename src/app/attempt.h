// What a lost rank takes with it, and what is made anew after: the ranks, the models and the program over them. All
// else of a run (data, tokenizer, rewards, records, checkpoints, copies in memory) outlives it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/chat.h"
#include "app/nonfinite.h"
#include "app/ranks.h"
#include "app/watch_run.h"
#include "config/config.h"
#include "control/journal.h"
#include "observe/progress.h"
#include "programs/program.h"
#include "programs/run_state.h"

namespace tandem {

// What an attempt works with; all of it must outlive it.
struct AttemptContext {
  const Config& config;                   // on the attempt's ranks
  const std::vector<int>& ranks;          // their numbers; empty: all
  const std::vector<std::string>& words;  // what a rank is started with
  const Chat& chat;
  size_t train_rows;
  std::shared_ptr<TrajectoryStore> store;
  WorkerGroup<RewardWorker>& reward;
  std::optional<Journal>& journal;  // may be filled later
  NonFiniteGuard& guard;
  WatchedRun& watched;
  Progress& progress;
  PhaseTimer& timer;
  Runtime& runtime;
  const Breakpoints& breakpoints;
  std::shared_ptr<InFlight> in_flight;
};

// Calls of the run's roles are timed and shown, and held where there is a breakpoint for them.
CallObserver call_observer(PhaseTimer& timer, Progress& progress, const Breakpoints& breakpoints);

class Attempt {
 public:
  // Makes the models; what cannot be is refused here.
  explicit Attempt(const AttemptContext& context);
  ~Attempt();

  // Starts the other ranks, if any, and joins them. WorkerLost or CommunicationError where one does not come.
  void start_ranks();
  // Ends the other ranks at once; the attempt is of no more use then.
  void abandon();

  WorkerGroup<Engine>& actor() { return actor_; }
  Program& program() { return *program_; }
  const Program& program() const { return *program_; }
  StatefulRoles stateful() { return {actor_.worker(0), critic_ ? &critic_->worker(0) : nullptr}; }
  // This process's roles and the other ranks.
  std::vector<WorkerStatus> workers();

 private:
  std::shared_ptr<Reference> new_reference();
  std::shared_ptr<Critic> new_critic();
  Roles roles();  // makes token_advantages_
  EngineOptions guarded_engine_options();
  CriticOptions guarded_critic_options();
  CallObserver observer() const { return call_observer(context_.timer, context_.progress, context_.breakpoints); }

  const AttemptContext context_;
  std::optional<RankGroup> ranks_;  // ends after the engine, which dismisses them
  std::shared_ptr<Team> team_;
  WorkerGroup<Engine> actor_;
  std::shared_ptr<RemoteReference> remote_reference_;  // null: beside the actor, or none
  std::shared_ptr<RemoteCritic> remote_critic_;
  std::optional<WorkerGroup<Reference>> reference_;
  std::optional<WorkerGroup<Critic>> critic_;
  std::optional<WorkerGroup<TokenAdvantages>> token_advantages_;
  std::unique_ptr<Program> program_;
};

}  // namespace tandem
