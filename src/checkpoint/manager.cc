#include "checkpoint/manager.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/manifest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "global_step_";
constexpr std::string_view kHiddenPrefix = ".global_step_";
constexpr std::string_view kLatestName = "latest_checkpointed_iteration.txt";

std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

fs::path folder_of(const fs::path& root, int64_t step) { return root / (std::string(kPrefix) + std::to_string(step)); }

fs::path hidden_folder(const fs::path& root, int64_t step, std::string_view purpose) {
  return root / (std::string(kHiddenPrefix) + std::to_string(step) + "." + std::string(purpose));
}

std::vector<Checkpoint> step_folders(const fs::path& root) {
  std::vector<Checkpoint> found;
  if (!fs::is_directory(root)) return found;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !entry.is_directory()) continue;
    if (const auto step = number_in(std::string_view(name).substr(kPrefix.size())))
      found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

struct Saved {
  Checkpoint checkpoint;
  int64_t sequence = 0;
};

struct Scan {
  std::vector<Saved> complete;      // saved last comes first
  std::vector<std::string> broken;  // what is wrong with the others
};

Scan scan(const fs::path& root) {
  Scan result;
  for (const auto& candidate : step_folders(root)) {
    try {
      result.complete.push_back({candidate, verify_folder(candidate.folder, candidate.step, Verify::kSizes).sequence});
    } catch (const IoError& error) {
      result.broken.emplace_back(error.what());
    }
  }
  std::sort(result.complete.begin(), result.complete.end(), [](const Saved& a, const Saved& b) {
    return std::pair(a.sequence, a.checkpoint.step) > std::pair(b.sequence, b.checkpoint.step);
  });
  return result;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw IoError("cannot rename " + from.string() + " to " + to.string() + ": " + std::strerror(errno));
}

// Leftovers of a killed save: its folder, and the pointer's file before it got its name.
void remove_hidden(const fs::path& root) {
  const std::string unnamed_pointer = std::string(kLatestName) + ".tmp.";
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kHiddenPrefix) || name.starts_with(unnamed_pointer)) leftovers.push_back(entry.path());
  }
  for (const auto& leftover : leftovers) fs::remove_all(leftover);
}

// In one atomic exchange where the file system can do it, so that a complete folder is at `target` at all times.
void publish(const fs::path& made, const fs::path& target, const fs::path& replaced) {
  if (!fs::exists(target)) {
    rename_folder(made, target);
  } else if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    rename_folder(made, replaced);
  } else {
    rename_folder(target, replaced);
    rename_folder(made, target);
  }
  sync_path(target.parent_path());
}

void warn_of_dangling_pointer(const fs::path& root) {
  const fs::path pointer = root / kLatestName;
  if (!fs::exists(pointer)) return;
  std::string text = read_file(pointer);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const auto step = number_in(text);
  if (!step) return log_warn(pointer.string() + " does not hold a step; ignoring it");
  if (!fs::exists(folder_of(root, *step)))
    log_warn(pointer.string() + " names " + folder_of(root, *step).filename().string() + ", which is absent");
}

// The standard library's file errors, as ours.
template <class F>
auto with_io_errors(const F& work) {
  try {
    return work();
  } catch (const fs::filesystem_error& error) {
    throw IoError(std::string("checkpoint: ") + error.what());
  }
}

}  // namespace

CheckpointManager::CheckpointManager(fs::path root, int keep) : root_(std::move(root)), keep_(keep) {
  if (keep < 0) throw ConfigError("the number of checkpoints to keep is " + std::to_string(keep) + "; give 0 or more");
  root_ = fs::absolute(root_).lexically_normal();
}

Checkpoint CheckpointManager::save(int64_t step, const std::function<void(const fs::path&)>& write) {
  check(step >= 0, "a checkpoint's step is not negative");
  return with_io_errors([&] {
    fs::create_directories(root_);
    remove_hidden(root_);
    const fs::path made = hidden_folder(root_, step, "saving"), target = folder_of(root_, step);
    const auto earlier = scan(root_).complete;
    const int64_t sequence = earlier.empty() ? 1 : earlier.front().sequence + 1;
    try {
      fs::create_directory(made);
      write(made);
      seal_folder(made, step, sequence);
      const fs::path replaced = hidden_folder(root_, step, "replaced");
      publish(made, target, replaced);
      fs::remove_all(replaced);
    } catch (...) {
      std::error_code ignored;  // the first failure is the one to report
      fs::remove_all(made, ignored);
      throw;
    }
    try {
      write_file_atomic(root_ / kLatestName, std::to_string(step));
    } catch (const IoError& error) {  // only other programs read it
      log_warn(error.what());
    }
    remove_old(step);
    return Checkpoint{step, target};
  });
}

Checkpoint CheckpointManager::import(int64_t step, const std::function<void(const fs::path&)>& fill) {
  return with_io_errors([&] {
    fs::create_directories(root_);
    remove_hidden(root_);
    const fs::path made = hidden_folder(root_, step, "fetching"), target = folder_of(root_, step);
    const fs::path replaced = hidden_folder(root_, step, "replaced");
    try {
      fs::create_directory(made);
      fill(made);
      verify_folder(made, step, Verify::kContent);
      publish(made, target, replaced);
      fs::remove_all(replaced);
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(made, ignored);
      throw;
    }
    return Checkpoint{step, target};
  });
}

// The new checkpoint stands, so an old one that cannot be removed is no reason to stop the run.
void CheckpointManager::remove_old(int64_t just_saved) const {
  if (keep_ == 0) return;
  const auto complete = scan(root_).complete;
  for (size_t i = static_cast<size_t>(keep_); i < complete.size(); ++i) {
    const auto& old = complete[i].checkpoint;
    check(old.step != just_saved, "the checkpoint just saved is the newest");
    const fs::path hidden = hidden_folder(root_, old.step, "deleting");  // so that no half of it is ever seen
    try {
      rename_folder(old.folder, hidden);
      fs::remove_all(hidden);
    } catch (const std::exception& error) {
      log_warn(std::string("cannot remove an old checkpoint: ") + error.what());
    }
  }
}

std::optional<Checkpoint> CheckpointManager::find_latest(Verify verify) const {
  return with_io_errors([&]() -> std::optional<Checkpoint> {
    const auto found = scan(root_);
    for (const auto& what : found.broken) log_warn("skipping a broken checkpoint: " + what);
    warn_of_dangling_pointer(root_);
    for (const auto& saved : found.complete) {
      try {
        if (verify == Verify::kContent) verify_folder(saved.checkpoint.folder, saved.checkpoint.step, verify);
        return saved.checkpoint;
      } catch (const IoError& error) {
        log_warn(std::string("skipping a broken checkpoint: ") + error.what());
      }
    }
    return std::nullopt;
  });
}

std::vector<int64_t> CheckpointManager::complete_steps() const {
  std::vector<int64_t> steps = newest_steps();
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<int64_t> CheckpointManager::newest_steps() const {
  return with_io_errors([&] {
    std::vector<int64_t> steps;
    for (const auto& saved : scan(root_).complete) steps.push_back(saved.checkpoint.step);
    return steps;
  });
}

Checkpoint open_checkpoint(const fs::path& folder, Verify verify) {
  return with_io_errors([&] { return Checkpoint{verify_folder(folder, std::nullopt, verify).step, folder}; });
}

}  // namespace tandem
