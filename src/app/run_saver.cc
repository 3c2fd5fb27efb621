#include "app/run_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "observe/host_info.h"

namespace tandem {
namespace {

constexpr int64_t kLongestRetry = 64;  // steps

bool every(int64_t period, int64_t step) { return period > 0 && step % period == 0; }

}  // namespace

RunSaver::RunSaver(const TrainerConfig& config, int64_t total_steps, const std::filesystem::path& run_folder,
                   CheckpointManager& checkpoints, std::optional<Journal>& journal, PhaseTimer& timer, bool keep_copy)
    : config_(config),
      total_steps_(total_steps),
      run_folder_(run_folder),
      checkpoints_(checkpoints),
      journal_(journal),
      timer_(timer),
      keep_copy_(keep_copy),
      writer_(checkpoints, config.checkpoint.max_write_mb_per_s * 1e6) {
  if (config.checkpoint.remote_path) remote_.emplace(*config.checkpoint.remote_path);
}

std::optional<Checkpoint> RunSaver::fetch_remote() {
  return remote_ ? fetch_newest(*remote_, checkpoints_) : std::nullopt;
}

bool RunSaver::remote_is_due(int64_t step) const { return remote_ && every(config_.checkpoint.remote_freq, step); }

bool RunSaver::disk_is_due(int64_t step) const {
  if (retry_at_ && step >= *retry_at_) return true;
  if (config_.save_freq > 0 && (step % config_.save_freq == 0 || step == total_steps_)) return true;
  return every(config_.checkpoint.local_freq, step) || remote_is_due(step);
}

bool RunSaver::has_room() {
  if (fits_in_memory(run_state_bytes(*roles_))) return true;
  if (memory_) return false;  // the place of the copy before will do
  has_memory_ = false;
  log_warn(
      fmt::format("a copy of the state takes {:.1f} GB and {:.1f} are free: none is kept in memory, and each "
                  "save makes its step wait; trainer.checkpoint.memory_freq=0 and "
                  "trainer.checkpoint.async_save=false say so without this warning",
                  static_cast<double>(run_state_bytes(*roles_)) / (1 << 30), host_memory().available_gb));
  return false;
}

// Null, with one warning, where memory is short.
std::shared_ptr<RunState> RunSaver::copy(Progressed progressed) {
  if (!has_memory_) return nullptr;
  if (!keep_copy_) memory_.reset();  // its memory is used again, unless it is still being written
  const auto find_free = [this] {
    return std::ranges::find_if(copies_, [](const auto& state) { return state.use_count() == 1; });
  };
  auto free = find_free();
  if (free == copies_.end() && has_room()) {
    copies_.push_back(std::make_shared<RunState>());
    free = std::prev(copies_.end());
  } else if (free == copies_.end() && memory_) {
    memory_.reset();
    free = find_free();
  }
  if (free == copies_.end()) return nullptr;
  copy_run_state(*roles_, std::move(progressed), **free);
  return *free;
}

void RunSaver::keep_in_memory(Progressed progressed) {
  if (config_.checkpoint.memory_freq == 0) return;
  if (const auto state = copy(std::move(progressed))) memory_ = state;
}

bool RunSaver::keep_state(const Progressed& progressed) {
  keep_in_memory(progressed);
  if (memory_ && memory_->progressed.step == progressed.step) return true;
  after_step(progressed, true, [] {});
  wait();
  return saved_step_ == progressed.step;
}

void RunSaver::write_memory_copy() {
  wait();
  if (!memory_ || !roles_ || memory_->progressed.step <= saved_step_) return;
  if (journal_) journal_->start_file(memory_->progressed.step);
  write_beside(memory_->progressed.step, memory_);
  wait();
}

void RunSaver::detach() {
  wait();
  roles_.reset();
}

void RunSaver::after_step(const Progressed& progressed, bool force, const std::function<void()>& log) {
  const int64_t step = step_ = progressed.step;
  const bool full = journal_ && static_cast<double>(journal_->num_bytes()) > config_.journal.max_gb * 1e9;
  const bool to_disk = force || full || disk_is_due(step);
  const bool to_memory = every(config_.checkpoint.memory_freq, step);
  if (!to_disk && !to_memory) return log();
  const auto saving = timer_.scope("save_checkpoint");
  if (to_disk) {
    writer_.wait();  // one at a time, so that memory holds one more state at most
    retry_at_.reset();
    if (journal_) journal_->start_file(step);
  }
  const bool beside = to_disk && config_.checkpoint.async_save;
  const auto state = to_memory || beside ? copy(progressed) : nullptr;
  if (state && config_.checkpoint.memory_freq > 0) memory_ = state;  // any copy is as good
  if (!to_disk) return log();
  if (!state || !beside) return write_here(progressed, log);
  log();
  write_beside(step, state);
}

void RunSaver::write_beside(int64_t step, std::shared_ptr<const RunState> state) {
  writer_.start(
      step,
      [this, state = std::move(state)](const std::filesystem::path& folder, WritePace* pace) {
        write_run_state(folder, *state, *roles_, pace);
      },
      upload_of(step));
}

CheckpointWriter::Fill RunSaver::upload_of(int64_t step) {
  if (!remote_is_due(step)) return {};
  return [this](const std::filesystem::path& folder, WritePace* pace) {
    remote_->upload(folder, {run_folder_ / "metrics.jsonl", run_folder_ / "config.yaml"}, pace);
    if (config_.max_actor_ckpt_to_keep) remote_->remove_all_but(static_cast<size_t>(*config_.max_actor_ckpt_to_keep));
  };
}

void RunSaver::write_here(const Progressed& progressed, const std::function<void()>& log) {
  bool logged = false;
  writer_.start(
      progressed.step,
      [&](const std::filesystem::path& folder, WritePace*) {
        write_run_state(folder, progressed, *roles_);
        logged = true;
        log();
      },
      upload_of(progressed.step));
  writer_.wait();
  if (!logged) log();
}

void RunSaver::handle(const SaveReport& report) {
  error_ = report.error;
  if (!report.error.empty()) {
    ++num_failed_;
    const int64_t wait = std::min(kLongestRetry, int64_t{1} << std::min<int64_t>(failed_in_a_row_++, 6));
    retry_at_ = step_ + wait;
    log_warn(
        fmt::format("THE CHECKPOINT OF STEP {} WAS NOT SAVED: {}. Training goes on; the checkpoint before is "
                    "untouched, and the next try is in {} step{}",
                    report.step, report.error, wait, wait == 1 ? "" : "s"));
    return;
  }
  failed_in_a_row_ = 0;
  retry_at_.reset();
  saved_step_ = report.step;
  last_folder_ = report.folder;
  metrics_.merge(metrics_of(report));
  if (!report.upload_error.empty()) {
    ++num_failed_uploads_;
    log_warn(fmt::format("the checkpoint of step {} is on disk, but did not get to {}: {}", report.step,
                         config_.checkpoint.remote_path.value_or(""), report.upload_error));
  }
  if (!journal_) return;
  // Kept from the checkpoint before the newest on, so that a newest one that breaks loses no sample either.
  const std::vector<int64_t> saved = checkpoints_.newest_steps();
  const bool full = static_cast<double>(journal_->num_bytes()) > config_.journal.max_gb * 1e9;
  if (full || config_.max_actor_ckpt_to_keep == 1) {
    journal_->forget_up_to(report.step);
  } else if (saved.size() >= 2) {
    journal_->forget_up_to(std::min(saved[0], saved[1]));
  }
}

void RunSaver::take_reports() {
  while (const auto report = writer_.take_report()) handle(*report);
}

Metrics RunSaver::take_metrics() {
  take_reports();
  Metrics metrics = std::exchange(metrics_, {});
  if (num_failed_uploads_ > 0) metrics.set("perf/failed_uploads", static_cast<double>(num_failed_uploads_));
  if (num_failed_ > 0) metrics.set("perf/failed_saves", static_cast<double>(num_failed_));
  return metrics;
}

void RunSaver::wait() {
  writer_.wait();
  take_reports();
}

void RunSaver::finish() {
  wait();
  if (error_.empty()) return;
  throw IoError("the last checkpoint could not be saved: " + error_ +
                "; make room or choose another trainer.default_local_dir, and start the same command again" +
                (journal_ ? ": the journal holds the steps since the checkpoint before" : ""));
}

}  // namespace tandem
