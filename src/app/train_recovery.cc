// A run that lost a rank: everything the rank took along is made anew, and the run goes on where it was, bit for bit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "app/train_run.h"
#include "base/log.h"
#include "control/elastic.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirstPause = 100ms, kLongestPause = 2s;  // between tries to start ranks
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

int least_ranks(const Config& config) {
  if (config.trainer.runtime == "threads") return num_ranks(config);  // a thread can always be started
  const auto least = static_cast<int>(config.trainer.fault.min_ranks);
  return least > 0 ? least : (num_ranks(config) + 1) / 2;
}

std::chrono::steady_clock::duration grow_interval(const Config& config) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(config.trainer.fault.grow_interval));
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

void TrainRun::give_up(const std::string& cause, const std::string& why) {
  attempt_->abandon();
  saver_.write_memory_copy();
  throw WorkerLost(
      fmt::format("{}; {}: remove the cause and start the same command again, which goes on after step {} {}", cause,
                  why, saver_.saved_step(), journal_ ? "with the journal's finished samples" : "from the checkpoint"));
}

void TrainRun::recover(std::string cause) {
  if (!recovering_since_) recovering_since_ = Clock::now();
  const FaultConfig& fault = config_.trainer.fault;
  cause = loss_text(*runtime_, cause);
  if (!restarts_.take(Clock::now()))
    give_up(cause, fmt::format("ranks are replaced {} times within {:g} minutes at most (trainer.fault.max_restarts)",
                               fault.max_restarts, fault.window_minutes));
  log_warn(fmt::format("step {}: {}; its group is started anew", step_ + 1, cause));
  const auto deadline = Clock::now() + std::chrono::duration<double>(fault.replace_timeout);
  auto pause = kFirstPause;
  std::vector<int> ranks = ranks_;
  while (const auto failure = rebuilt(ranks)) {
    if (Clock::now() < deadline) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    } else {
      ranks = go_on_without(ranks, *failure);
      if (ranks.empty())
        give_up(*failure, fmt::format("no {} ranks came within {:g} s (trainer.fault.replace_timeout, min_ranks)",
                                      least_ranks(config_), fault.replace_timeout));
    }
  }
  log_info(fmt::format("ranks replaced in {:.1f} s; going on after step {}, steps up to {} are made again",
                       std::chrono::duration<double>(Clock::now() - *recovering_since_).count(), step_,
                       written_.metrics));
}

// The ranks to go on with; none: too few.
std::vector<int> TrainRun::go_on_without(const std::vector<int>& ranks, const std::string& cause) const {
  const int planned = num_ranks(config_);
  const auto lost = runtime_->lost();
  if (lost && lost->role != "actor") return {};  // nobody can do its work
  const auto all = ranks.empty() ? all_ranks(planned) : ranks;
  const Layout layout = run_layout(config_);
  const int unit = layout.pp > 1 ? planned : layout.tp;
  const auto left = fewer_ranks(all, lost ? std::make_optional(lost->rank) : std::nullopt, unit, least_ranks(config_));
  if (!left.empty())
    log_warn(
        fmt::format("GOING ON WITH {} OF {} RANKS ({}), since {}; weights and optimizer state are those of the "
                    "last copy, and a sum over other ranks differs in rounding. Missing ranks are looked for "
                    "every {:g} s",
                    left.size(), planned, fmt::join(left, ", "), cause, config_.trainer.fault.grow_interval));
  return left;
}

// Nothing: it went well; else why not.
std::optional<std::string> TrainRun::rebuilt(const std::vector<int>& ranks) {
  std::string cause;
  try {
    rebuild(ranks);
    return std::nullopt;
  } catch (const CommunicationError& error) {
    cause = error.what();
  } catch (const WorkerLost& error) {
    cause = error.what();
  }
  return loss_text(*runtime_, cause);
}

void TrainRun::use_ranks(std::vector<int> ranks) {
  if (static_cast<int>(ranks.size()) == num_ranks(config_)) ranks.clear();
  ranks_ = std::move(ranks);
  group_config_ = on_ranks(config_, ranks_);
}

void TrainRun::rebuild(const std::vector<int>& ranks) {
  attempt_->abandon();
  saver_.detach();
  watched_.end_step(timer_);  // a trace of the step that failed
  attempt_.reset();
  store_->clear();
  if (journal_) open_journal();  // read from its files, as a process that is started again does
  use_ranks(ranks);
  attempt_.emplace(context());
  saver_.attach(attempt_->stateful());
  attempt_->start_ranks();
  restore();
  next_look_ = Clock::now() + grow_interval(config_);
  // Other ranks end a step with other bits: what was said of those that are made again holds no more.
  const bool other_bits = written_.ranks != ranks_;
  written_.ranks = ranks_;
  if (!other_bits || written_.samples <= step_) return;
  const int64_t steps = std::max<int64_t>(0, written_.metrics - step_);
  summary_.rewards.resize(summary_.rewards.size() - static_cast<size_t>(steps));
  open_records_after(step_);
}

bool TrainRun::misses_ranks() const { return num_ranks(group_config_) < num_ranks(config_); }

// Beside the steps, since starting a process takes a while.
void TrainRun::look_for_ranks() {
  if (!can_come_back_.valid()) {
    if (Clock::now() < next_look_) return;
    std::vector<int> missing;
    for (const int rank : all_ranks(num_ranks(config_)))
      if (!std::ranges::binary_search(ranks_, rank)) missing.push_back(rank);
    can_come_back_ = std::async(
        std::launch::async, [this, missing] { return could_start(rank_plan(config_), missing, words_, *runtime_); });
    return;
  }
  if (can_come_back_.wait_for(0s) != std::future_status::ready) return;
  next_look_ = Clock::now() + grow_interval(config_);
  if (can_come_back_.get()) take_back_ranks();
}

void TrainRun::take_back_ranks() {
  if (!saver_.keep_state(progressed())) return;
  recovering_since_ = Clock::now();
  const std::vector<int> fewer = ranks_;
  const auto failure = rebuilt({});
  if (!failure) {
    log_warn(fmt::format("ALL {} RANKS ARE BACK, from step {} on: taken in within {:.1f} s", num_ranks(config_),
                         step_ + 1, std::chrono::duration<double>(Clock::now() - *recovering_since_).count()));
    return;
  }
  log_warn(fmt::format("missing ranks could not be taken back: {}", *failure));
  if (const auto again = rebuilt(fewer)) recover(*again);
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
