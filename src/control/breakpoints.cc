#include "control/breakpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::milliseconds(20);

std::string breakpoint_file(std::string_view method, int rank) { return fmt::format("{}@{}", method, rank); }

std::optional<Breakpoint> breakpoint_of(const std::string& file) {
  const size_t at = file.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  Breakpoint point{.method = file.substr(0, at)};
  const auto read = std::from_chars(file.data() + at + 1, file.data() + file.size(), point.rank);
  if (read.ec != std::errc() || read.ptr != file.data() + file.size()) return std::nullopt;
  return point;
}

// In place, so that a file that was removed meanwhile stays so.
void note_arguments(const fs::path& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const auto written = ::write(file, text.data(), text.size());
  ::close(file);
}

}  // namespace

void Breakpoints::set(std::string_view method, int rank) const {
  std::error_code why;
  fs::create_directories(folder_, why);
  write_file_atomic(folder_ / breakpoint_file(method, rank), "");
}

size_t Breakpoints::release(std::string_view method, std::optional<int> rank) const {
  size_t count = 0;
  std::error_code ignored;
  for (const Breakpoint& point : list())
    if ((method == "all" || point.method == method) && (!rank || point.rank == *rank))
      count += fs::remove(folder_ / breakpoint_file(point.method, point.rank), ignored) ? 1 : 0;
  return count;
}

std::vector<Breakpoint> Breakpoints::list() const {
  std::vector<Breakpoint> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    auto point = breakpoint_of(entry.path().filename().string());
    if (!point) continue;
    const auto changed = fs::last_write_time(entry.path(), ignored);
    if (ignored) continue;  // released meanwhile
    if (fs::file_size(entry.path(), ignored) > 0) {
      point->arguments = read_file(entry.path());
      point->held_seconds = std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
    }
    all.push_back(std::move(*point));
  }
  std::ranges::sort(all, {}, [](const Breakpoint& p) { return std::pair(p.method, p.rank); });
  return all;
}

bool Breakpoints::any(std::string_view method) const {
  return std::ranges::any_of(list(), [&](const Breakpoint& point) { return point.method == method; });
}

bool Breakpoints::has(std::string_view method, int rank) const {
  std::error_code ignored;
  return fs::exists(folder_ / breakpoint_file(method, rank), ignored);
}

void Breakpoints::wait(std::string_view method, std::optional<int> rank,
                       const std::function<std::string()>& arguments) const {
  if (rank && has(method, *rank)) note_arguments(folder_ / breakpoint_file(method, *rank), arguments());
  while (rank ? has(method, *rank) : any(method)) std::this_thread::sleep_for(kLookEvery);
}

}  // namespace tandem
