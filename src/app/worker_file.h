// workers.json of a run's folder: its processes and what each does, written anew every second while the run has others.
// `tandem debug` reads it.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "control/runtime.h"

namespace tandem {

class WorkerFile {
 public:
  // `runtime` must outlive it. `doing`: what this process does, asked from a thread of its own. What cannot be written
  // is left out: it must not end a run.
  WorkerFile(std::filesystem::path path, const Runtime& runtime, std::function<std::string()> doing);
  ~WorkerFile();  // removes the file
  WorkerFile(const WorkerFile&) = delete;
  WorkerFile& operator=(const WorkerFile&) = delete;

 private:
  void write_on();

  const std::filesystem::path path_;
  const Runtime& runtime_;
  const std::function<std::string()> doing_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem
