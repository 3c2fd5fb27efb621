#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "control/runtime.h"
#include "observe/host_info.h"

namespace tandem {
namespace {

// A thread cannot be ended from outside: those of a group that is of no more use go when their exchanges fail, which is
// when the group's leader lets go of its ends.
class WorkerThreads final : public Runtime {
 public:
  explicit WorkerThreads(WorkerLife life) : life_(std::move(life)) {}
  ~WorkerThreads() override {
    end(std::chrono::milliseconds(0));
    for (Running& worker : leaving_) worker.thread.join();
  }

  std::string_view name() const override { return "threads"; }

  void start(const std::vector<WorkerSpec>& specs) override {
    const std::lock_guard lock(mutex_);
    check(group_.empty(), "a group runs already");
    for (const WorkerSpec& spec : specs) {
      const auto about = std::make_shared<Shared>();
      about->status = {
          .role = spec.role, .device = spec.device, .host = host_name(), .rank = spec.rank, .pid = getpid()};
      about->status.state = WorkerState::kRunning;
      group_.push_back({about, std::thread([this, about, spec] { live(*about, spec); })});
    }
  }

  std::vector<WorkerStatus> workers() const override {
    const std::lock_guard lock(mutex_);
    std::vector<WorkerStatus> all;
    for (const Running& worker : group_) all.push_back(worker.shared->snapshot());
    return all;
  }

  std::optional<WorkerStatus> lost() const override {
    for (const WorkerStatus& status : workers())
      if (status.state == WorkerState::kEnded && !status.last_lines.empty()) return status;
    return std::nullopt;
  }

  void end(std::chrono::milliseconds grace) override {
    const auto deadline = Clock::now() + grace;
    for (const Running& worker : group_) worker.shared->wait_until(deadline);  // only this thread changes the group
    const std::lock_guard lock(mutex_);
    for (Running& worker : group_) leaving_.push_back(std::move(worker));
    group_.clear();
  }

  bool try_out(const std::vector<WorkerSpec>&, std::chrono::milliseconds) override { return true; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable ended;
    WorkerStatus status;
    Clock::time_point since = Clock::now();

    WorkerStatus snapshot() const {
      const std::lock_guard lock(mutex);
      WorkerStatus copy = status;
      copy.doing_seconds = std::chrono::duration<double>(Clock::now() - since).count();
      return copy;
    }
    void wait_until(Clock::time_point deadline) {
      std::unique_lock lock(mutex);
      ended.wait_until(lock, deadline, [this] { return status.state == WorkerState::kEnded; });
    }
  };
  struct Running {
    std::shared_ptr<Shared> shared;
    std::thread thread;
  };

  void live(Shared& shared, const WorkerSpec& spec) const {
    std::string error;
    try {
      life_(spec, [&shared](std::string_view what) {
        const std::lock_guard lock(shared.mutex);
        shared.status.doing = what;
        shared.since = Clock::now();
      });
    } catch (const std::exception& e) {
      error = e.what();
    }
    {
      const std::lock_guard lock(shared.mutex);
      shared.status.state = WorkerState::kEnded;
      shared.status.ending = error.empty() ? "exit code 0" : "an error";
      if (!error.empty()) shared.status.last_lines = {error};
    }
    shared.ended.notify_all();
  }

  const WorkerLife life_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Running> group_, leaving_;
};

}  // namespace

std::unique_ptr<Runtime> worker_threads(WorkerLife life) { return std::make_unique<WorkerThreads>(std::move(life)); }

}  // namespace tandem
