#include "preflight/clock_skew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace tandem {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

double clock_ahead(const std::filesystem::path& folder) {
  const auto path = folder / fmt::format(".preflight-clock-{}", getpid());
  const double before = now();
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  struct stat facts {};
  const bool ok = fd >= 0 && write(fd, "t", 1) == 1 && fsync(fd) == 0 && fstat(fd, &facts) == 0;
  const std::string why = ok ? "" : std::strerror(errno);
  const double after = now();
  if (fd >= 0) close(fd), unlink(path.c_str());
  if (!ok) throw IoError(path.string() + " cannot be written: " + why + "; choose another trainer.default_local_dir");
  const double written = static_cast<double>(facts.st_mtim.tv_sec) + 1e-9 * static_cast<double>(facts.st_mtim.tv_nsec);
  // A file system may cut its times to coarse ticks; a time within [before, after] is no skew.
  if (written < before) return before - written;
  return written > after ? after - written : 0;
}

Finding check_clock(const std::filesystem::path& folder, double most_seconds,
                    const std::function<double(const std::filesystem::path&)>& measure) {
  Finding finding{"clock", Verdict::kPass, "", "", {}};
  try {
    const double ahead = measure(folder);
    const std::string text = fmt::format("this clock is {:.3f} s {} that of {}", std::abs(ahead),
                                         ahead < 0 ? "behind" : "ahead of", folder.string());
    finding.why = text;
    if (std::abs(ahead) > most_seconds)
      finding.worsen(Verdict::kFail, fmt::format("{}; trainer.preflight.max_clock_skew_s={}", text, most_seconds),
                     "set the clock by NTP (timedatectl set-ntp true), or raise the bound");
  } catch (const IoError& error) {
    finding.worsen(Verdict::kFail, error.what(), "see the storage check");
  }
  return finding;
}

}  // namespace tandem
