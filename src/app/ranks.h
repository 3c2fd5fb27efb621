// The processes of a run: the first one holds the program, the rewards and all files; the others are started by it with
// the same words and follow its engine.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/team.h"
#include "parallel/communicator_gloo.h"

namespace tandem {

int num_ranks(const Config& config);
Layout run_layout(const Config& config);

// How processes work together.
struct RankPlan {
  Layout layout;
  Timeout timeout;    // of an exchange
  bool gpus = false;  // each has one of its own

  int size() const { return layout.world(); }
};
RankPlan rank_plan(const Config& config);

// Where a started rank finds the others. rank 0: this process was started by the user.
struct RankAddress {
  int rank = 0;
  uint16_t port = 0;
};

class RankProcesses {
 public:
  // Starts all ranks but the first: this program with `words`, a subcommand first, after which it is told --rank and
  // --port. Does not wait for them.
  RankProcesses(const RankPlan& plan, const std::vector<std::string>& words);
  // Waits a moment for them to end by themselves, then kills them.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Waits until all have come; `optimizer_steps` of the run are told to them. CommunicationError when one does not.
  std::shared_ptr<Team> team(int64_t optimizer_steps = 0);

 private:
  void wait_for_arrivals();

  RankPlan plan_;
  Rendezvous place_;
  std::vector<pid_t> children_;
};

// A started rank's whole life; returns the exit code. `work` is given its team and the run's optimizer steps.
using RankWork = std::function<void(std::shared_ptr<Team> team, int64_t optimizer_steps)>;
int follow_ranks(const RankPlan& plan, const RankAddress& address, const RankWork& work);
int follow_run(const Config& config, const RankAddress& address);

}  // namespace tandem
