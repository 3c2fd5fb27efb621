// The runs under some folders, kept up to date by a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dashboard/recorded_run.h"

namespace tandem {

// Folders that hold a metrics.jsonl, at most four levels below `root`, itself included; folders of checkpoints and
// TensorBoard are passed over. Each with its id: the path from `root`, or the folder's own name for `root` itself.
std::vector<std::pair<std::string, std::filesystem::path>> find_runs(const std::filesystem::path& root);

// Thread-safe.
class RunStore {
 public:
  RunStore(std::vector<std::filesystem::path> roots, std::chrono::milliseconds interval);
  ~RunStore();

  std::vector<std::shared_ptr<RecordedRun>> runs() const;          // by id
  std::shared_ptr<RecordedRun> find(const std::string& id) const;  // null: there is none
  const std::vector<std::filesystem::path>& roots() const { return roots_; }

  uint64_t version() const;  // counts the changes
  // wait() returns the newest count as soon as it differs from `seen`, or after `limit`, or when
  // the store is stopped.
  uint64_t wait(uint64_t seen, std::chrono::milliseconds limit) const;
  bool stopped() const;
  void stop();  // ends every wait and the thread

 private:
  void watch();
  bool look_for_runs();

  const std::vector<std::filesystem::path> roots_;
  const std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<RecordedRun>> runs_;
  uint64_t version_ = 1;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem
