// The ranks of a run: this process holds the program, the rewards and all files; the others are workers of a Runtime,
// started with the same words, and follow its engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "control/breakpoints.h"
#include "control/runtime.h"
#include "engine/remote_roles.h"
#include "engine/team.h"
#include "parallel/communicator_gloo.h"

namespace tandem {

int num_ranks(const Config& config);
std::vector<std::string> own_roles(const Config& config);  // roles that have processes of their own
bool has_others(const Config& config);                     // ranks or roles besides this process
int64_t threads_of_a_rank(const Config& config);           // of the kernels: the ranks share the machine's cores
Layout run_layout(const Config& config);
std::unique_ptr<Runtime> make_runtime(const Config& config);
// The same run on some of its ranks only (their numbers); empty: all.
Config on_ranks(Config config, const std::vector<int>& ranks);

// How processes work together.
struct RankPlan {
  Layout layout;
  Timeout timeout;                      // of an exchange
  bool gpus = false;                    // each has one of its own
  Routing actor = {};                   // as the configuration has it: without a network
  int ranks_per_node = 0;               // 0: as the ranks find it
  std::vector<std::string> roles = {};  // that have processes of their own; they come after the ranks
  std::vector<int> ranks = {};          // their numbers where some of the planned ones are missing; empty: 0, 1, ...

  int size() const { return layout.world(); }
  int number(int place) const { return ranks.empty() ? place : ranks[static_cast<size_t>(place)]; }
  int everybody() const { return size() + static_cast<int>(roles.size()); }
  int place(int number) const;  // among those that are there
};
// `config`: on these ranks.
RankPlan rank_plan(const Config& config, std::vector<int> ranks = {});

// Where a started rank finds the others. rank 0: this process was started by the user. port 0: there is nobody to find,
// the process only shows that it can run.
struct RankAddress {
  int rank = 0;
  std::string role = {};  // a role's process: `rank` is its place
  uint16_t port = 0;
  std::vector<int> among = {};  // as RankPlan::ranks
};

// Whether these ranks could be started now. Takes seconds; any thread.
bool could_start(const RankPlan& plan, const std::vector<int>& ranks, const std::vector<std::string>& words,
                 Runtime& runtime);

// The others of one group, from their start to their end. WorkerLost or CommunicationError where one does not come.
class RankGroup {
 public:
  // Starts all ranks but the first: this program with `words`, a subcommand first, after which it is told --rank and
  // --port. Does not wait for them. `runtime` must outlive it.
  RankGroup(const RankPlan& plan, const std::vector<std::string>& words, Runtime& runtime);
  // Waits a moment for them to end by themselves, then ends them.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Waits until all have come; `optimizer_steps` of the run are told to them. `in_flight` may be null.
  std::shared_ptr<Team> team(int64_t optimizer_steps = 0, TeamHooks hooks = {},
                             std::shared_ptr<InFlight> in_flight = {});

  // After team(), if there is one: to a role's process, which is told of how many steps the run is.
  std::shared_ptr<RoleLink> link(const std::string& role, int64_t steps);

 private:
  void wait_for_arrivals();

  RankPlan plan_;
  Runtime& runtime_;
  Rendezvous place_;
};

// A started rank's whole life; returns the exit code. `work` is given its team and the run's optimizer steps.
using RankWork = std::function<void(std::shared_ptr<Team> team, int64_t optimizer_steps)>;
int follow_ranks(const RankPlan& plan, const RankAddress& address, const RankWork& work, TeamHooks hooks = {});

int follow_role(const Config& config, const RankAddress& address);  // the same of a role's process

// A team that the run's breakpoints hold: `rank` is its number.
TeamHooks held_by(const Breakpoints& breakpoints, int rank);
int follow_run(const Config& config, const RankAddress& address);  // `config`: on the address's ranks

}  // namespace tandem
