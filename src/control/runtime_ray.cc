#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "control/ray_cluster.h"
#include "control/runtime.h"
#include "control/worker_json.h"
#include "ray/ray_abi.h"

extern char** environ;

namespace tandem {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTurn = 200ms;                                 // between two looks at all workers
constexpr std::chrono::milliseconds kShortPlaceTimeout = 3s;  // the running group is not looked at meanwhile

std::filesystem::path this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

// libtandem_ray.so lies beside the program. DEEPBIND: what is in Ray's library is not to be taken from ours.
const tandem_ray_api& open_library() {
  const std::string path = this_program().parent_path() / "libtandem_ray.so";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (library == nullptr)
    throw ConfigError(
        fmt::format("trainer.runtime=ray: {}; build it with ./dev setup ray and ./dev build", ::dlerror()));
  const auto get = reinterpret_cast<decltype(&tandem_ray_get_api)>(::dlsym(library, "tandem_ray_get_api"));
  if (get == nullptr || get()->version != TANDEM_RAY_ABI)
    throw ConfigError("trainer.runtime=ray: " + path + " is of another version; build it anew");
  return *get();
}

void append(void* context, const char* data, size_t size) { static_cast<std::string*>(context)->assign(data, size); }

// All calls of Ray are made by one thread, which looks at the workers in between.
class RayActors final : public Runtime {
 public:
  explicit RayActors(const RayOptions& options) : options_(options), api_(open_library()) {
    if (options_.address.empty()) cluster_ = std::make_unique<RayCluster>();
    const std::string address = cluster_ ? cluster_->address() : options_.address;
    thread_ = std::thread([this] { serve(); });
    try {
      on_thread([&] {
        std::string error;
        if (api_.connect(address.c_str(), append, &error) != 0)
          throw ConfigError(fmt::format("cannot reach Ray at {}: {}", address, error));
      });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~RayActors() override {
    end(0ms);
    on_thread([this] { api_.disconnect(); });
    stop();
  }

  std::string_view name() const override { return "Ray actors"; }

  void start(const std::vector<WorkerSpec>& specs) override {
    check(group_ == nullptr, "a group runs already");
    on_thread([&] {
      tandem_ray_group* group = new_group(specs, options_.place_timeout);
      const std::lock_guard lock(mutex_);
      group_ = group;
      lost_.reset();
      workers_.clear();
      for (const WorkerSpec& spec : specs)
        workers_.push_back({.role = spec.role, .device = spec.device, .host = "Ray", .rank = spec.rank});
    });
    on_thread([this] { look(); });
  }

  std::vector<WorkerStatus> workers() const override {
    const std::lock_guard lock(mutex_);
    return workers_;
  }
  std::optional<WorkerStatus> lost() const override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  void end(std::chrono::milliseconds grace) override {
    on_thread([&] { end_group(grace); });
    const std::lock_guard lock(mutex_);
    workers_.clear();
    lost_.reset();
  }

  bool try_out(const std::vector<WorkerSpec>& specs, std::chrono::milliseconds patience) override {
    const auto deadline = Clock::now() + patience;
    tandem_ray_group* beside = nullptr;
    try {
      on_thread([&] { beside = new_group(specs, std::min(patience, kShortPlaceTimeout)); });
    } catch (const IoError&) {
      return false;
    }
    std::vector<bool> done(specs.size());
    bool failed = false;
    while (!failed && std::ranges::count(done, true) < std::ssize(done) && Clock::now() < deadline) {
      std::this_thread::sleep_for(kTurn);
      on_thread([&] {
        for (size_t i = 0; i < done.size() && !failed; ++i) {
          const WorkerStatus status = status_of(beside, static_cast<int>(i), {});
          done[i] = status.ending == "exit code 0";
          failed = is_loss(status);
        }
      });
    }
    on_thread([&] { api_.end(beside, 0); });
    return !failed && std::ranges::count(done, true) == std::ssize(done);
  }

 private:
  // Of the thread. IoError where Ray has no room for it in time.
  tandem_ray_group* new_group(const std::vector<WorkerSpec>& specs, std::chrono::milliseconds place_timeout) const {
    std::vector<std::string> texts;
    std::vector<const char*> pointers;
    for (WorkerSpec spec : specs) {
      spec.program = std::filesystem::canonical(spec.program);
      if (spec.folder.empty()) spec.folder = std::filesystem::current_path();
      // A worker has what this process has, not what Ray was started with.
      for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view mine(*entry);
        const std::string_view name = mine.substr(0, mine.find('=') + 1);
        if (std::ranges::none_of(spec.environment, [&](const std::string& e) { return e.starts_with(name); }))
          spec.environment.emplace_back(mine);
      }
      texts.push_back(to_json(spec));
    }
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    std::string error;
    tandem_ray_group* group = nullptr;
    if (api_.start(pointers.data(), static_cast<int>(pointers.size()), options_.cpus,
                   options_.watch.heartbeat_timeout.count(), static_cast<int>(place_timeout.count()), &group, append,
                   &error) != 0)
      throw IoError("Ray could not start the workers: " + error);
    return group;
  }

  // Of the thread. `before`: what was known of it.
  WorkerStatus status_of(tandem_ray_group* group, int worker, WorkerStatus before) const {
    std::string text, error;
    const int result = api_.status(group, worker, static_cast<int>(options_.watch.heartbeat_timeout.count()), append,
                                   &text, append, &error);
    if (result == 0) {
      const auto found = worker_states(text);
      return found.empty() ? before : found.front();
    }
    before.state = result == 2 ? WorkerState::kHung : WorkerState::kEnded;
    before.ending = "the loss of its Ray actor";
    return before;
  }

  static bool is_loss(const WorkerStatus& status) {
    return status.state == WorkerState::kHung ||
           (status.state == WorkerState::kEnded && status.ending != "exit code 0");
  }

  void on_thread(const std::function<void()>& work) {
    std::packaged_task<void()> task(work);
    auto done = task.get_future();
    {
      const std::lock_guard lock(queue_mutex_);
      queue_.push_back(std::move(task));
    }
    wake_.notify_one();
    done.get();
  }

  void stop() {
    {
      const std::lock_guard lock(queue_mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void serve() {
    std::unique_lock lock(queue_mutex_);
    while (!stopping_) {
      if (queue_.empty()) wake_.wait_for(lock, kTurn, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) {
        lock.unlock();
        look();
        lock.lock();
        continue;
      }
      auto task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  void look() {
    if (group_ == nullptr) return;
    for (int i = 0; group_ != nullptr && i < static_cast<int>(workers().size()); ++i) {
      const WorkerStatus status = status_of(group_, i, workers()[static_cast<size_t>(i)]);
      {
        const std::lock_guard lock(mutex_);
        workers_[static_cast<size_t>(i)] = status;
        if (is_loss(status) && !lost_) lost_ = status;
      }
      if (is_loss(status)) end_group(0ms);
    }
  }

  void end_group(std::chrono::milliseconds grace) {
    if (group_ == nullptr) return;
    api_.end(std::exchange(group_, nullptr), static_cast<int>(grace.count()));
  }

  const RayOptions options_;
  const tandem_ray_api& api_;
  std::unique_ptr<RayCluster> cluster_;  // ends after all calls
  tandem_ray_group* group_ = nullptr;    // of the thread
  mutable std::mutex mutex_;             // guards what follows
  std::vector<WorkerStatus> workers_;
  std::optional<WorkerStatus> lost_;

  std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Runtime> ray_actors(const RayOptions& options) { return std::make_unique<RayActors>(options); }

}  // namespace tandem
