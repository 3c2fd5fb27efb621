// What a run finished since its newest checkpoints: every sample with its tokens, log-probs and reward, and every step.
// A run that was killed takes its finished samples from here instead of drawing them again; the steps it makes anew are
// then, bit for bit, those that were lost. Files are <folder>/after_<step>: the steps after that one up to the next
// file's. Tokens stay on disk; memory holds where each sample lies.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/record_log.h"
#include "data/trajectory_store.h"
#include "observe/metrics.h"

namespace tandem {

// When records are forced onto the disk. A killed process loses nothing even without: the system has them then.
enum class JournalSync { kNone, kStep, kSample };
JournalSync parse_journal_sync(const std::string& name);  // none, step, sample

struct JournalOptions {
  std::filesystem::path folder;
  JournalSync sync = JournalSync::kStep;
  uint64_t fingerprint = 0;  // of all that decides what is drawn and learnt; files of another one are set aside
};

struct JournalReward {
  double score = 0;
  std::vector<std::pair<std::string, double>> extra;
};

// Thread-safe. A journal that cannot be written warns, counts and lets training go on: what is missing in it is drawn
// again, the same. Errors of the constructor are IoError.
class Journal {
 public:
  // Reads what is there; cuts off an unfinished last record, steps over damaged ones.
  explicit Journal(JournalOptions options);

  // The step (counted from 1) that everything from now on belongs to, until the next call. `layout`: of the ranks that
  // make it. Where others made it before, its update ends in other bits than theirs did, so that the samples of later
  // steps were drawn by weights that will never be again: they are forgotten. Its own samples stay.
  // `prompts`: of the step, for prompts_of().
  void begin_step(int64_t step, const std::string& layout, int64_t prompts = 0);
  // What a step was begun with, where it is made again; and the last one that is known; 0: nothing is.
  int64_t prompts_of(int64_t step) const;
  int64_t last_prompts() const;

  // The sample of this step as it was drawn before, or null. `greedy`: remax's baseline. One of another prompt text or
  // other weights does not count.
  TrajectoryPtr recall(bool greedy, const PromptPtr& prompt, uint32_t sample_index, uint64_t policy_version);
  void record(bool greedy, const TrajectoryPtr& trajectory);

  // Of a trajectory that recall() or record() of this step has seen; others (validation's) are unknown here.
  std::optional<JournalReward> recall_reward(const Trajectory& trajectory);
  void record_reward(const Trajectory& trajectory, const JournalReward& reward);

  // The step is done: its update was made.
  void commit(uint64_t policy_version, size_t num_samples);

  // From here on a checkpoint of `step` may stand: later steps go to a file of their own.
  void start_file(int64_t step);
  // Forgets the files whose steps are all at or before `step`.
  void forget_up_to(int64_t step);
  void remove();     // the run is over
  void set_aside();  // another run begins: <folder>/earlier holds what was there

  bool empty() const;              // neither a sample nor a step
  int64_t last_committed() const;  // 0: none
  size_t samples_after(int64_t step) const;
  uint64_t num_bytes() const;  // of all its files
  // perf/journal_recalled_samples, journal_mb, and journal_failed_writes when there were any; of the step.
  Metrics take_metrics();

 private:
  using Key = std::tuple<int64_t, bool, uint64_t, uint32_t>;  // step, greedy, prompt, sample
  struct Place {
    int64_t file = 0;  // by the step it comes after
    uint64_t offset = 0, size = 0;
  };
  struct Entry {
    Place sample, reward;  // size 0: none
  };

  std::filesystem::path path_of(int64_t after) const;
  void read_files();
  void read_file_of(int64_t after);
  std::vector<std::byte> payload_at(const Place& place) const;
  void append(uint32_t type, const std::string& payload, bool sync);
  struct Made {
    std::string layout;
    int64_t prompts = 0;
  };
  void made(int64_t step, const Made& made);

  JournalOptions options_;
  mutable std::mutex mutex_;
  std::map<int64_t, uint64_t> files_;   // size by the step they come after
  std::optional<RecordWriter> writer_;  // into the last of them; opened by its first record
  std::map<Key, Entry> index_;
  std::map<int64_t, Made> made_;  // by step
  std::unordered_map<const Trajectory*, Key> of_this_step_;
  int64_t step_ = 0, last_committed_ = 0;
  size_t num_recalled_ = 0, num_failures_ = 0;
};

}  // namespace tandem
