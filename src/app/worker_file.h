// workers.json of a run's folder: its processes and what each does, written anew every second while the run has others.
// `tandem debug` reads it.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "control/runtime.h"

namespace tandem {

class WorkerFile {
 public:
  // `runtime` must outlive it. What cannot be written is left out: it must not end a run.
  WorkerFile(std::filesystem::path path, const Runtime& runtime);
  ~WorkerFile();  // removes the file
  WorkerFile(const WorkerFile&) = delete;
  WorkerFile& operator=(const WorkerFile&) = delete;

 private:
  void write_on();

  const std::filesystem::path path_;
  const Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem
