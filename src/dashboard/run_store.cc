#include "dashboard/run_store.h"

#include <algorithm>
#include <set>

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kDepth = 4;
constexpr size_t kAtOnce = size_t{4} << 20;  // bytes of one run between two looks at the others
constexpr std::chrono::seconds kNewRuns{2};

using Found = std::vector<std::pair<std::string, fs::path>>;

void find_below(const fs::path& root, const fs::path& folder, int depth, Found& found) {
  std::error_code ignored;
  if (fs::exists(folder / "metrics.jsonl", ignored)) {
    const fs::path id =
        folder == root ? fs::absolute(root, ignored).lexically_normal() : fs::relative(folder, root, ignored);
    found.emplace_back(folder == root ? (id.has_filename() ? id : id.parent_path()).filename().string() : id.string(),
                       folder);
  }
  if (depth == 0) return;
  static const std::set<std::string> passed_over = {"checkpoints", "tensorboard", "wandb", "mlruns"};
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || name.starts_with("global_step_") || passed_over.contains(name)) continue;
    if (entry.is_directory(ignored)) find_below(root, entry.path(), depth - 1, found);
  }
}

}  // namespace

Found find_runs(const fs::path& root) {
  Found found;
  find_below(root, root, kDepth, found);
  std::sort(found.begin(), found.end());
  return found;
}

RunStore::RunStore(std::vector<fs::path> roots, std::chrono::milliseconds interval)
    : roots_(std::move(roots)), interval_(interval), thread_([this] { watch(); }) {}

RunStore::~RunStore() { stop(); }

void RunStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool RunStore::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool RunStore::look_for_runs() {
  std::map<std::string, fs::path> found;
  for (const fs::path& root : roots_) {
    for (auto& [id, folder] : find_runs(root)) {
      std::string name = id;
      for (int n = 2; found.contains(name); ++n) name = id + " (" + std::to_string(n) + ")";
      found.emplace(name, folder);
    }
  }
  const std::lock_guard lock(mutex_);
  const auto gone = std::erase_if(runs_, [&](const auto& entry) { return !found.contains(entry.first); });
  bool changed = gone > 0;
  for (const auto& [id, folder] : found) {
    if (runs_.contains(id)) continue;
    runs_.emplace(id, std::make_shared<RecordedRun>(id, folder));
    changed = true;
  }
  return changed;
}

void RunStore::watch() {
  Clock::time_point next_look{};
  for (;;) {
    bool changed = false, more = false;
    if (Clock::now() >= next_look) {
      changed = look_for_runs();
      next_look = Clock::now() + kNewRuns;
    }
    for (const auto& run : runs()) {
      const RecordedRun::News news = run->poll(kAtOnce);
      changed |= news.changed, more |= news.more;
      if (stopped()) return;
    }
    std::unique_lock lock(mutex_);
    if (changed) {
      ++version_;
      changed_.notify_all();
    }
    if (!more) changed_.wait_for(lock, interval_, [this] { return stopping_; });
    if (stopping_) return;
  }
}

std::vector<std::shared_ptr<RecordedRun>> RunStore::runs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RecordedRun>> out;
  for (const auto& [id, run] : runs_) out.push_back(run);
  return out;
}

std::shared_ptr<RecordedRun> RunStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

uint64_t RunStore::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

uint64_t RunStore::wait(uint64_t seen, std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return stopping_ || version_ != seen; });
  return version_;
}

}  // namespace tandem
