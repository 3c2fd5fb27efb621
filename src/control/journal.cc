#include "control/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/fnv.h"
#include "base/log.h"
#include "data/payload.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

enum RecordType : uint32_t { kHeader = 1, kSample = 2, kReward = 3, kCommit = 4, kMade = 5 };
constexpr uint32_t kVersion = 2;
constexpr std::string_view kFilePrefix = "after_";
constexpr size_t kWarnEvery = 100;  // failed writes

uint64_t hash_of(const Prompt& prompt) {
  const auto& ids = prompt.token_ids;
  return fnv1a(kFnvStart, std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)));
}

template <class Key>
void put_key(PayloadWriter& out, const Key& key) {
  const auto& [step, greedy, prompt, sample] = key;
  out.put(step).template put<uint8_t>(greedy).put(prompt).put(sample);
}

std::string sample_payload(const std::tuple<int64_t, bool, uint64_t, uint32_t>& key, const Trajectory& t) {
  PayloadWriter out;
  put_key(out, key);
  out.put(hash_of(*t.prompt));
  trajectory_fields(out, t);
  return out.bytes();
}

std::tuple<int64_t, bool, uint64_t, uint32_t> get_key(PayloadReader& in) {
  const auto step = in.get<int64_t>();
  const bool greedy = in.get<uint8_t>() != 0;
  const auto prompt = in.get<uint64_t>();
  return {step, greedy, prompt, in.get<uint32_t>()};
}

// Null where it is of another prompt text or other weights.
TrajectoryPtr read_sample(std::span<const std::byte> payload, const PromptPtr& prompt, uint64_t policy_version) {
  PayloadReader in(payload);
  get_key(in);
  if (in.get<uint64_t>() != hash_of(*prompt)) return nullptr;
  auto t = std::make_shared<Trajectory>();
  trajectory_fields(in, *t);
  if (t->policy_version != policy_version) return nullptr;
  t->prompt = prompt;
  return t;
}

}  // namespace

JournalSync parse_journal_sync(const std::string& name) {
  if (name == "none") return JournalSync::kNone;
  if (name == "sample") return JournalSync::kSample;
  check(name == "step", "a journal's fsync is none, step or sample");
  return JournalSync::kStep;
}

Journal::Journal(JournalOptions options) : options_(std::move(options)) {
  read_files();
  if (files_.empty()) files_[0] = 0;
}

fs::path Journal::path_of(int64_t after) const {
  return options_.folder / (std::string(kFilePrefix) + std::to_string(after));
}

void Journal::read_files() {
  if (!fs::is_directory(options_.folder)) return;
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFilePrefix) || !entry.is_regular_file()) continue;
    int64_t after = 0;
    const char* begin = name.data() + kFilePrefix.size();
    const char* end = name.data() + name.size();
    if (const auto read = std::from_chars(begin, end, after); read.ec == std::errc() && read.ptr == end && after >= 0)
      files_[after] = 0;
  }
  std::vector<int64_t> all;
  for (const auto& [after, size] : files_) all.push_back(after);
  try {
    for (const int64_t after : all) read_file_of(after);
  } catch (const DataError& error) {
    log_warn(std::string(error.what()) + "; it is set aside in " + (options_.folder / "earlier").string());
    set_aside();
  }
}

// DataError for a file of another run.
void Journal::read_file_of(int64_t after) {
  const fs::path path = path_of(after);
  bool known_run = false;
  RecordScan scan = scan_records(path, [&](uint32_t type, std::span<const std::byte> payload, uint64_t offset) {
    PayloadReader in(payload);
    if (type == kHeader) {
      known_run = true;
      if (in.get<uint32_t>() != kVersion || in.get<uint64_t>() != options_.fingerprint)
        throw DataError("the journal " + path.string() + " is of a run with other data, model or options");
    } else if (!known_run) {
      return;
    } else if (type == kCommit) {
      last_committed_ = std::max(last_committed_, in.get<int64_t>());
    } else if (type == kMade) {
      const auto step = in.get<int64_t>();
      auto layout = in.get_list<std::string>();
      made(step, {std::move(layout), in.get<int64_t>()});
    } else if (type == kSample || type == kReward) {
      Entry& entry = index_[get_key(in)];
      (type == kSample ? entry.sample : entry.reward) = {after, offset, payload.size()};
    }
  });
  if (!known_run) scan = {0, scan.whole_bytes + scan.torn_bytes, 0};  // nobody knows whose the rest is
  if (scan.damaged_bytes > 0)
    log_warn(fmt::format("the journal {} is damaged in {} bytes; what they held is drawn again, the same",
                         path.string(), scan.damaged_bytes));
  if (scan.torn_bytes > 0) {
    log_warn(fmt::format("{}: cut off its last {} bytes, which an interrupted run left unfinished", path.string(),
                         scan.torn_bytes));
    std::error_code why;
    fs::resize_file(path, scan.whole_bytes, why);
    if (why) throw IoError("cannot shorten " + path.string() + ": " + why.message());
  }
  files_[after] = scan.whole_bytes;
}

void Journal::begin_step(int64_t step, const std::string& layout, int64_t prompts) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  of_this_step_.clear();
  const auto known = made_.find(step);
  if (known != made_.end() && known->second.layout == layout && known->second.prompts == prompts) return;
  made(step, {layout, prompts});
  append(kMade, PayloadWriter().put(step).put_list(layout).put(prompts).bytes(), false);
}

void Journal::made(int64_t step, const Made& made) {
  const auto [known, is_new] = made_.try_emplace(step, made);
  const bool same = known->second.layout == made.layout && known->second.prompts == made.prompts;
  if (is_new || same) return;
  known->second = made;
  made_.erase(std::next(known), made_.end());
  index_.erase(index_.lower_bound(Key{step + 1, false, 0, 0}), index_.end());
  last_committed_ = std::min(last_committed_, step);
}

int64_t Journal::prompts_of(int64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto known = made_.find(step);
  return known == made_.end() ? 0 : known->second.prompts;
}

int64_t Journal::last_prompts() const {
  const std::lock_guard lock(mutex_);
  return made_.empty() ? 0 : made_.rbegin()->second.prompts;
}

std::vector<std::byte> Journal::payload_at(const Place& place) const {
  const MappedFile file(path_of(place.file));
  check(place.offset + place.size <= file.bytes().size(), "a journal's file has become shorter");
  const auto part = file.bytes().subspan(place.offset, place.size);
  return {part.begin(), part.end()};
}

TrajectoryPtr Journal::recall(bool greedy, const PromptPtr& prompt, uint32_t sample_index, uint64_t policy_version) {
  const std::lock_guard lock(mutex_);
  const Key key{step_, greedy, prompt->id, sample_index};
  const auto found = index_.find(key);
  if (found == index_.end() || found->second.sample.size == 0) return nullptr;
  TrajectoryPtr trajectory = read_sample(payload_at(found->second.sample), prompt, policy_version);
  if (trajectory == nullptr) {
    index_.erase(found);  // with its reward
    return nullptr;
  }
  of_this_step_[trajectory.get()] = key;
  ++num_recalled_;
  return trajectory;
}

void Journal::append(uint32_t type, const std::string& payload, bool sync) {
  auto& [after, size] = *files_.rbegin();
  try {
    if (!writer_) writer_.emplace(path_of(after), size);
    if (size == 0) writer_->append(kHeader, PayloadWriter().put(kVersion).put(options_.fingerprint).bytes());
    writer_->append(type, payload);
    size = writer_->size();
    if (sync) writer_->sync();
  } catch (const IoError& error) {
    if (num_failures_++ % kWarnEvery == 0)
      log_warn(std::string("the journal cannot be written (training goes on; after a kill, what is missing in it is "
                           "drawn again): ") +
               error.what());
  }
}

void Journal::record(bool greedy, const TrajectoryPtr& trajectory) {
  const std::lock_guard lock(mutex_);
  const Key key{step_, greedy, trajectory->prompt->id, trajectory->sample_index};
  of_this_step_[trajectory.get()] = key;
  append(kSample, sample_payload(key, *trajectory), options_.sync == JournalSync::kSample);
}

std::optional<JournalReward> Journal::recall_reward(const Trajectory& trajectory) {
  const std::lock_guard lock(mutex_);
  const auto known = of_this_step_.find(&trajectory);
  if (known == of_this_step_.end()) return std::nullopt;
  const auto found = index_.find(known->second);
  if (found == index_.end() || found->second.reward.size == 0) return std::nullopt;
  const std::vector<std::byte> payload = payload_at(found->second.reward);
  PayloadReader in(payload);
  get_key(in);
  JournalReward reward;
  reward.score = in.get<double>();
  for (auto count = in.get<uint64_t>(); count > 0; --count) {
    auto name = in.get_list<std::string>();
    reward.extra.emplace_back(std::move(name), in.get<double>());
  }
  return reward;
}

void Journal::record_reward(const Trajectory& trajectory, const JournalReward& reward) {
  const std::lock_guard lock(mutex_);
  const auto known = of_this_step_.find(&trajectory);
  if (known == of_this_step_.end()) return;
  if (const auto found = index_.find(known->second); found != index_.end() && found->second.reward.size > 0) return;
  PayloadWriter out;
  put_key(out, known->second);
  out.put(reward.score).put<uint64_t>(reward.extra.size());
  for (const auto& [name, value] : reward.extra) out.put_list(name).put(value);
  append(kReward, out.bytes(), false);
}

void Journal::commit(uint64_t policy_version, size_t num_samples) {
  const std::lock_guard lock(mutex_);
  of_this_step_.clear();
  index_.erase(index_.begin(), index_.lower_bound(Key{step_ + 1, false, 0, 0}));
  if (step_ <= last_committed_) return;  // made anew
  const auto sync = options_.sync != JournalSync::kNone;
  append(kCommit, PayloadWriter().put(step_).put(policy_version).put<uint64_t>(num_samples).bytes(), sync);
  last_committed_ = step_;
}

void Journal::start_file(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (files_.rbegin()->first >= step) return;
  writer_.reset();
  files_[step] = 0;
}

void Journal::forget_up_to(int64_t step) {
  const std::lock_guard lock(mutex_);
  while (files_.size() > 1 && std::next(files_.begin())->first <= step) {
    std::error_code why;
    fs::remove(path_of(files_.begin()->first), why);
    if (why) return log_warn("cannot remove " + path_of(files_.begin()->first).string() + ": " + why.message());
    files_.erase(files_.begin());
  }
}

void Journal::remove() {
  const std::lock_guard lock(mutex_);
  writer_.reset();
  std::error_code ignored;
  for (const auto& [after, size] : files_) fs::remove(path_of(after), ignored);
  fs::remove(options_.folder, ignored);  // where nothing else is in it
  files_ = {{0, 0}};
  index_.clear();
}

void Journal::set_aside() {
  const std::lock_guard lock(mutex_);
  if (!fs::is_directory(options_.folder)) return;
  const fs::path aside = options_.folder / "earlier";
  fs::remove_all(aside);
  fs::create_directories(aside);
  for (const auto& [after, size] : files_)
    if (fs::exists(path_of(after))) fs::rename(path_of(after), aside / path_of(after).filename());
  writer_.reset();
  files_ = {{0, 0}};
  index_.clear();
  made_.clear();
  last_committed_ = 0;
}

bool Journal::empty() const {
  const std::lock_guard lock(mutex_);
  return index_.empty() && last_committed_ == 0;
}

int64_t Journal::last_committed() const {
  const std::lock_guard lock(mutex_);
  return last_committed_;
}

size_t Journal::samples_after(int64_t step) const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (auto at = index_.lower_bound(Key{step + 1, false, 0, 0}); at != index_.end(); ++at)
    count += at->second.sample.size > 0 ? 1 : 0;
  return count;
}

uint64_t Journal::num_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [after, size] : files_) bytes += size;
  return bytes;
}

Metrics Journal::take_metrics() {
  const double megabytes = static_cast<double>(num_bytes()) / 1e6;
  const std::lock_guard lock(mutex_);
  Metrics metrics;
  metrics.set("perf/journal_mb", megabytes);
  metrics.set("perf/journal_recalled_samples", static_cast<double>(std::exchange(num_recalled_, 0)));
  if (num_failures_ > 0) metrics.set("perf/journal_failed_writes", static_cast<double>(num_failures_));
  return metrics;
}

}  // namespace tandem
