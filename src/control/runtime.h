// Who starts, watches and ends the processes of a group. A runtime knows no ML: a worker is a program with words. A
// worker that dies, or gives no sign of life in time, takes its group with it: the others are ended at once, so that
// whoever waits for one of them hears of it, and the group can be started anew.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tandem {

// A worker of the group died or hung; names role, rank, host, process, what it did and its last lines.
class WorkerLost : public Error {
 public:
  using Error::Error;
};

struct WorkerSpec {
  std::string role, device;  // as people call them
  int rank = 0;
  std::string program = "/proc/self/exe";
  std::string folder;                    // to start it in; empty: this process's
  std::vector<std::string> arguments;    // the first one is the program's own name
  std::vector<std::string> environment;  // NAME=value, over what this process has
};

enum class WorkerState { kStarting, kRunning, kHung, kEnded };
std::string_view name_of(WorkerState state);

struct WorkerStatus {
  std::string role, device, host;
  int rank = 0;
  pid_t pid = 0;
  WorkerState state = WorkerState::kStarting;
  std::string doing;                    // by its last sign of life
  double doing_seconds = 0;             // for how long
  double quiet_seconds = 0;             // since that sign
  std::string ending;                   // "exit code 2", "signal 9 (Killed)"; empty while it runs
  std::vector<std::string> last_lines;  // of its standard error, oldest first
};

// "actor rank 1 (process 17 on node3) was ended by signal 9 (Killed) in update; its last lines: ..."
std::string describe_loss(const WorkerStatus& worker);

// A line for each worker under a line of headings.
std::vector<std::string> worker_table(const std::vector<WorkerStatus>& workers);

// Thread-safe. One group at a time; after end() another may be started.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual std::string_view name() const = 0;
  // Does not wait for the workers to be ready. IoError where a process cannot be started.
  virtual void start(const std::vector<WorkerSpec>& workers) = 0;
  virtual std::vector<WorkerStatus> workers() const = 0;  // of the group, by rank
  // The worker of this group whose loss came first; others that it took along are not told.
  virtual std::optional<WorkerStatus> lost() const = 0;
  // Gives the workers `grace` to end by themselves, then ends them. Afterwards the group is empty.
  virtual void end(std::chrono::milliseconds grace) = 0;
  // Whether these workers, which end by themselves soon, can be started beside the group and end with 0 within
  // `patience`. Nothing of them stays.
  virtual bool try_out(const std::vector<WorkerSpec>& workers, std::chrono::milliseconds patience) = 0;

  void throw_if_lost() const;  // WorkerLost
};

// One process is the whole group: nothing to start or to watch.
class InProcess final : public Runtime {
 public:
  std::string_view name() const override { return "in-process"; }
  void start(const std::vector<WorkerSpec>& workers) override;
  std::vector<WorkerStatus> workers() const override { return {}; }
  std::optional<WorkerStatus> lost() const override { return std::nullopt; }
  void end(std::chrono::milliseconds) override {}
  bool try_out(const std::vector<WorkerSpec>&, std::chrono::milliseconds) override { return false; }
};

// Threads of this process. `life` is all that a worker does; what it throws is its loss. `tell`: what it does now.
using WorkerLife = std::function<void(const WorkerSpec& spec, const std::function<void(std::string_view what)>& tell)>;
std::unique_ptr<Runtime> worker_threads(WorkerLife life);

struct LocalOptions {
  std::chrono::milliseconds heartbeat_timeout{30'000};
  // From the start of a process to its first sign of life; loading a model comes after.
  std::chrono::milliseconds start_timeout{60'000};
};
// Processes of this machine, children of this one, that hold a Pulse (control/pulse.h).
std::unique_ptr<Runtime> local_processes(const LocalOptions& options);

struct RayOptions {
  LocalOptions watch;
  std::string address;  // host:port of a running Ray; empty: one is started, and ended with this
  double cpus = 1;      // of a worker's place
  std::chrono::milliseconds place_timeout{60'000};
};
// Actors of a Ray cluster, each in a place of its own, that start and watch one process. ConfigError where this build
// has no Ray or none can be reached.
std::unique_ptr<Runtime> ray_actors(const RayOptions& options);

}  // namespace tandem
