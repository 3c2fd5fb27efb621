// A run that lost a rank: everything the rank took along is made anew, and the run goes on where it was, bit for bit.
#include <fmt/format.h>

#include <thread>

#include "app/train_run.h"
#include "base/log.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr auto kHearsay = 2s;  // an exchange fails a moment before the runtime knows how the rank ended

// How the loss came about: the runtime's knowledge, then what this rank saw.
std::string loss_text(const Runtime& runtime, const std::string& seen) {
  const auto deadline = std::chrono::steady_clock::now() + kHearsay;
  while (!runtime.lost() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
  if (const auto worker = runtime.lost()) {
    const std::string loss = describe_loss(*worker);
    return loss == seen ? loss : fmt::format("{} (here: {})", loss, seen);
  }
  std::string text = seen;
  for (const WorkerStatus& worker : runtime.workers())
    text += fmt::format("; {} rank {} (process {} on {}) is in {} since {:.1f} s", worker.role, worker.rank, worker.pid,
                        worker.host, worker.doing, worker.doing_seconds);
  return text;
}

}  // namespace

void TrainRun::run_on() {
  for (;;) {
    std::string cause;
    try {
      return steps();
    } catch (const CommunicationError& error) {
      cause = error.what();
    } catch (const WorkerLost& error) {
      cause = error.what();
    }
    recover(cause);
  }
}

void TrainRun::recover(std::string cause) {
  if (!recovering_since_) recovering_since_ = Clock::now();
  for (;;) {
    cause = loss_text(*runtime_, cause);
    const FaultConfig& fault = config_.trainer.fault;
    if (!restarts_.take(Clock::now())) {
      attempt_->abandon();
      saver_.write_memory_copy();
      throw WorkerLost(fmt::format(
          "{}; ranks are replaced {} times within {:g} minutes at most (trainer.fault.max_restarts): remove the cause "
          "and start the same command again, which goes on after step {} {}",
          cause, fault.max_restarts, fault.window_minutes, saver_.saved_step(),
          journal_ ? "with the journal's finished samples" : "from the checkpoint"));
    }
    log_warn(fmt::format("step {}: {}; its group is started anew", step_ + 1, cause));
    try {
      rebuild();
      log_info(fmt::format("ranks replaced in {:.1f} s; going on after step {}, steps up to {} are made again",
                           std::chrono::duration<double>(Clock::now() - *recovering_since_).count(), step_,
                           written_.metrics));
      return;
    } catch (const CommunicationError& error) {
      cause = error.what();
    } catch (const WorkerLost& error) {
      cause = error.what();
    }
  }
}

void TrainRun::rebuild() {
  attempt_->abandon();
  saver_.detach();
  watched_.end_step(timer_);  // a trace of the step that failed
  attempt_.reset();
  store_->clear();
  if (journal_) open_journal();  // read from its files, as a process that is started again does
  attempt_.emplace(context());
  saver_.attach(attempt_->stateful());
  attempt_->start_ranks();
  restore();
}

// From the newest state there is: the copy in memory, or what was saved or resumed from, or the run's very start.
void TrainRun::restore() {
  const auto memory = saver_.in_memory();
  if (memory && memory->progressed.step >= saver_.saved_step()) {
    restore_run_state(*memory, attempt_->stateful());
    return take(memory->progressed);
  }
  const std::filesystem::path& saved = saver_.last_folder();
  if (!saved.empty()) return take(read_run_state(saved, saver_.saved_step(), attempt_->stateful()));
  if (resumed_from_) return take(read_run_state(resumed_from_->folder, resumed_from_->step, attempt_->stateful()));
  take({});
}

}  // namespace tandem
