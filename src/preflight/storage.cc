#include "preflight/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr size_t kChunk = 4 << 20;
constexpr uint32_t kAllServers = 0xffff;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class TestFile {
 public:
  explicit TestFile(const fs::path& folder)
      : path_(folder / fmt::format(".preflight-{}", getpid())),
        fd_(open(path_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail("cannot be written");
  }
  ~TestFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void flush() {
    if (fsync(fd_) != 0) fail("cannot be flushed");
  }
  void forget_pages() const { posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }
  void read_all(std::span<std::byte> chunk) {
    lseek(fd_, 0, SEEK_SET);
    ssize_t n = 0;
    while ((n = ::read(fd_, chunk.data(), chunk.size())) > 0) {
    }
    if (n < 0) fail("cannot be read back");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw IoError(fmt::format("{} {}: {}; make room, or choose another trainer.default_local_dir", path_.string(), what,
                              std::strerror(errno)));
  }
  fs::path path_;
  int fd_;
};

std::string rate_text(double bytes_per_s) { return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9); }

void judge_speed(const StorageOptions& options, const Throughput& speed, Finding& finding) {
  finding.details.push_back(fmt::format("{} MiB written at {}, read at {}", options.test_bytes >> 20,
                                        rate_text(speed.write), rate_text(speed.read)));
  if (options.checkpoint_bytes > 0)
    finding.details.push_back(fmt::format("a checkpoint of {} takes {:.0f} s to write",
                                          gib_text(options.checkpoint_bytes),
                                          static_cast<double>(options.checkpoint_bytes) / speed.write));
  const double slowest = std::min(speed.write, speed.read);
  if (slowest < options.least_bytes_per_s)
    finding.worsen(
        Verdict::kFail,
        fmt::format("{} is {} at {}, below trainer.preflight.min_storage_gb_per_s={:.2f}", options.folder.string(),
                    speed.write < speed.read ? "written" : "read", rate_text(slowest), options.least_bytes_per_s / 1e9),
        "use a faster folder in trainer.default_local_dir, or lower the floor");
}

void judge_stripes(const StorageOptions& options, const FileSystem& files, Finding& finding) {
  if (!files.stripes) return;
  const auto& [bytes, count] = *files.stripes;
  finding.details.push_back(count == kAllServers
                                ? fmt::format("striped over all servers, {} a piece", gib_text(bytes))
                                : fmt::format("striped over {} servers, {} a piece", count, gib_text(bytes)));
  if (count <= 1 && options.checkpoint_bytes > int64_t{1} << 30)
    finding.worsen(
        Verdict::kWarn,
        fmt::format("checkpoints of {} would lie on one Lustre server each", gib_text(options.checkpoint_bytes)),
        fmt::format("lfs setstripe -c 8 -S 4M {}", options.folder.string()));
}

}  // namespace

Throughput measure_storage(const fs::path& folder, int64_t bytes) {
  std::vector<std::byte> chunk(kChunk);
  Philox random(1, 2);  // so that a file system that compresses gains nothing
  for (size_t i = 0; i + 4 <= chunk.size(); i += 4) {
    const auto word = static_cast<uint32_t>(random.below(uint64_t{1} << 32));
    std::memcpy(chunk.data() + i, &word, 4);
  }
  TestFile file(folder);
  Throughput out;
  auto start = Clock::now();
  int64_t written = 0;
  for (; written < bytes; written += static_cast<int64_t>(kChunk)) file.write_all(chunk);
  file.flush();
  out.write = static_cast<double>(written) / seconds_since(start);
  file.forget_pages();
  start = Clock::now();
  file.read_all(chunk);
  out.read = static_cast<double>(written) / seconds_since(start);
  return out;
}

Finding check_storage(const StorageOptions& options, const FileSystem& files) {
  Finding finding{"storage", Verdict::kPass, "", "", {}};
  finding.why = fmt::format("{} on {}{}", options.folder.string(), files.kind,
                            files.source.empty() ? "" : " (" + files.source + ")");
  if (files.memory)
    finding.worsen(
        Verdict::kWarn,
        fmt::format("{} lies in memory ({}): checkpoints go with the machine", options.folder.string(), files.kind),
        "use a folder on a disk in trainer.default_local_dir");
  if (options.nodes > 1 && !files.shared)
    finding.worsen(Verdict::kFail,
                   fmt::format("{} lies on {}, which the other {} machines do not see", options.folder.string(),
                               files.kind, options.nodes - 1),
                   "use a folder on a shared file system in trainer.default_local_dir");
  try {
    std::error_code error;
    fs::create_directories(options.folder, error);
    if (error)
      throw IoError(fmt::format("{} cannot be made: {}; choose another trainer.default_local_dir",
                                options.folder.string(), error.message()));
    const auto speed = options.measure(options.folder, options.test_bytes);
    if (options.test_bytes > 0) judge_speed(options, speed, finding);
  } catch (const IoError& error) {
    finding.worsen(Verdict::kFail, error.what(), "give this user the right to write there, or choose another folder");
  }
  judge_stripes(options, files, finding);
  return finding;
}

}  // namespace tandem
