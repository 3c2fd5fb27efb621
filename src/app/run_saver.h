// When a training run saves what: copies in memory, checkpoints on disk written beside training, the journal cut behind
// them. docs/reliability.md says what each is for.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "app/checkpoint_writer.h"
#include "checkpoint/object_store.h"
#include "config/config.h"
#include "control/journal.h"
#include "observe/timing.h"
#include "programs/run_state.h"

namespace tandem {

class RunSaver {
 public:
  // All must outlive it. `journal` may be empty, and be filled later. `keep_copy`: a newer copy in memory takes no room
  // from the one before until it is whole, so that one stays if a rank is lost meanwhile.
  RunSaver(const TrainerConfig& config, int64_t total_steps, const std::filesystem::path& run_folder,
           CheckpointManager& checkpoints, std::optional<Journal>& journal, PhaseTimer& timer, bool keep_copy);

  // The roles whose state is saved from here on; they must live until detach(), which waits for what is being written.
  void attach(StatefulRoles roles) { roles_.emplace(roles); }
  void detach();

  // The newest checkpoint in object storage, brought here; nothing where there is none, or no such storage.
  std::optional<Checkpoint> fetch_remote();

  // Once after each step: saves what is due (`force`: to disk in any case). `log` writes the step's metrics; it is
  // called once, before a checkpoint of the step can stand: a run killed between the two makes the step again, while a
  // checkpoint without its line could never get it.
  void after_step(const Progressed& progressed, bool force, const std::function<void()>& log);

  // Of the saves that have ended since the last call; warns of those that failed.
  Metrics take_metrics();

  // A copy in memory out of turn, and the newest such copy to disk, where that is older.
  void keep_in_memory(Progressed progressed);
  // A state to come back to, in memory or on disk. False, with a warning: there is none of this step.
  bool keep_state(const Progressed& progressed);
  void write_memory_copy();

  void wait();    // for what is being written
  void finish();  // the same; IoError when the last one failed

  // The newest copy of the whole state in memory; null: none yet, or switched off.
  std::shared_ptr<const RunState> in_memory() const { return memory_; }

  void resumed_at(int64_t step) { saved_step_ = step; }
  int64_t saved_step() const { return saved_step_; }                         // newest on disk
  const std::filesystem::path& last_folder() const { return last_folder_; }  // empty: none saved

 private:
  bool disk_is_due(int64_t step) const;
  bool remote_is_due(int64_t step) const;
  bool has_room();
  std::shared_ptr<RunState> copy(Progressed progressed);
  void write_beside(int64_t step, std::shared_ptr<const RunState> state);
  CheckpointWriter::Fill upload_of(int64_t step);
  void write_here(const Progressed& progressed, const std::function<void()>& log);
  void take_reports();
  void handle(const SaveReport& report);

  TrainerConfig config_;
  int64_t total_steps_;
  std::filesystem::path run_folder_;
  std::optional<ObjectStore> remote_;
  CheckpointManager& checkpoints_;
  std::optional<StatefulRoles> roles_;
  std::optional<Journal>& journal_;
  PhaseTimer& timer_;
  const bool keep_copy_;
  bool has_memory_ = true;  // for copies
  std::vector<std::shared_ptr<RunState>> copies_;
  std::shared_ptr<RunState> memory_;
  CheckpointWriter writer_;  // its thread uses the members above
  Metrics metrics_;
  std::string error_;  // of the last save; empty: it went well
  int64_t saved_step_ = 0, step_ = 0, num_failed_ = 0, failed_in_a_row_ = 0, num_failed_uploads_ = 0;
  std::optional<int64_t> retry_at_;
  std::filesystem::path last_folder_;
};

}  // namespace tandem
