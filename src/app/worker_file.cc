#include "app/worker_file.h"

#include <unistd.h>

#include <chrono>

#include "base/error.h"
#include "base/file.h"
#include "control/worker_json.h"
#include "observe/host_info.h"

namespace tandem {

WorkerFile::WorkerFile(std::filesystem::path path, const Runtime& runtime, std::function<std::string()> doing)
    : path_(std::move(path)), runtime_(runtime), doing_(std::move(doing)), thread_([this] { write_on(); }) {}

WorkerFile::~WorkerFile() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_one();
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void WorkerFile::write_on() {
  std::string doing;
  auto since = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    if (std::string now = doing_(); now != doing) doing = std::move(now), since = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    std::vector<WorkerStatus> all{{.role = "controller",
                                   .device = "cpu",
                                   .host = host_name(),
                                   .pid = ::getpid(),
                                   .state = WorkerState::kRunning,
                                   .doing = doing,
                                   .doing_seconds = seconds}};
    for (WorkerStatus& worker : runtime_.workers()) all.push_back(std::move(worker));
    try {
      write_file_atomic(path_, to_json(all) + "\n");
    } catch (const IoError&) {
    }
    lock.lock();
    stopped_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; });
  }
}

}  // namespace tandem
