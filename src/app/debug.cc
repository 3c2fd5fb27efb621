// tandem debug: the processes of a run, what each does, and where those stand that do nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/command.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "control/breakpoints.h"
#include "control/worker_json.h"
#include "observe/host_info.h"
#include "programs/dispatch.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Files of /proc have no size to map by; "" for what cannot be read.
std::string read_proc(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "T (stopped)", of /proc/PID/status.
std::string process_state(pid_t pid) {
  std::istringstream lines(read_proc(fmt::format("/proc/{}/status", pid)));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("State:")) return line.substr(line.find_first_not_of(" \t", 6));
  return "gone";
}

// Each thread's name, the kernel's function it waits in, and its kernel stack where that may be read (as root).
void print_threads(pid_t pid) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    std::string name = read_proc(entry.path() / "comm");
    if (!name.empty()) name.pop_back();
    const std::string waits = read_proc(entry.path() / "wchan");
    print_line(fmt::format("    thread {} {}: waits in {}", entry.path().filename().string(), name,
                           waits.empty() || waits == "0" ? "nothing the kernel names" : waits));
    std::istringstream stack(read_proc(entry.path() / "stack"));
    for (std::string line; std::getline(stack, line);) print_line("      " + line);
  }
}

struct DebugArguments {
  std::string folder, break_at, release;
  std::optional<int> rank;
};

std::string methods_text() { return fmt::format("{}", fmt::join(kMethodNames, ", ")); }

// Of ranks other than the first the actor's verbs can be held: the other roles work in the first.
void check_breakpoint(const DebugArguments& a, int rank) {
  if (std::ranges::find(kMethodNames, a.break_at) == std::end(kMethodNames))
    throw ConfigError(fmt::format("--break {}: no such method; there are {}", a.break_at, methods_text()));
  if (rank > 0 && !a.break_at.starts_with("actor."))
    throw ConfigError(fmt::format("--break {} --rank {}: rank 0 holds that role; leave --rank out", a.break_at, rank));
  const fs::path workers = fs::path(a.folder) / "workers.json";
  if (rank == 0 || !fs::exists(workers)) return;
  const auto all = worker_states(read_file(workers));
  if (std::ranges::none_of(all, [&](const WorkerStatus& worker) { return worker.rank == rank; }))
    throw ConfigError(fmt::format("--rank {}: the run has no such rank; `tandem debug {}` lists them", rank, a.folder));
}

void print_breakpoints(const Breakpoints& breakpoints) {
  for (const Breakpoint& point : breakpoints.list()) {
    const std::string state = point.held_seconds < 0
                                  ? "not reached yet"
                                  : fmt::format("held since {:.1f} s; {}", point.held_seconds, point.arguments);
    print_line(fmt::format("breakpoint {} of rank {}: {}", point.method, point.rank, state));
  }
}

int change_breakpoints(const DebugArguments& a, const Breakpoints& breakpoints) {
  if (!a.break_at.empty()) {
    const int rank = a.rank.value_or(0);
    check_breakpoint(a, rank);
    breakpoints.set(a.break_at, rank);
    print_line(fmt::format("rank {} will be held before its next {}; --release {} lets it go on", rank, a.break_at,
                           a.break_at));
  }
  if (!a.release.empty()) {
    const size_t count = breakpoints.release(a.release, a.rank);
    if (count == 0) throw ConfigError(fmt::format("--release {}: no such breakpoint is set", a.release));
    print_line(fmt::format("{} released", count));
  }
  return 0;
}

int debug(const DebugArguments& a) {
  const std::string& folder = a.folder;
  const Breakpoints breakpoints(fs::path(folder) / kBreakpointFolder);
  if (!a.break_at.empty() || !a.release.empty()) return change_breakpoints(a, breakpoints);
  print_breakpoints(breakpoints);
  const fs::path path = fs::path(folder) / "workers.json";
  if (!fs::exists(path) && !breakpoints.list().empty()) return 0;
  if (!fs::exists(path))
    throw ConfigError(path.string() +
                      " is not there: the folder is no run's, the run is over, or it is a single process; see its "
                      "log.jsonl");
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(path);
  print_line(fmt::format("as of {:.1f} s ago", std::chrono::duration<double>(age).count()));
  const auto workers = worker_states(read_file(path));
  for (const std::string& line : worker_table(workers)) print_line(line);
  for (const WorkerStatus& worker : workers) {
    const std::string who = fmt::format("{} rank {}, process {}", worker.role, worker.rank, worker.pid);
    if (worker.host != host_name()) {
      print_line(fmt::format("{}: look on {}", who, worker.host));
      continue;
    }
    const std::string state = process_state(worker.pid);
    print_line(fmt::format("{}: {}{}", who, state,
                           worker.doing.empty()
                               ? ""
                               : fmt::format(", {} since {:.1f} s, last sign {:.1f} s before", worker.doing,
                                             worker.doing_seconds, worker.quiet_seconds)));
    if (state != "gone" && state[0] != 'R') print_threads(worker.pid);
  }
  return 0;
}

}  // namespace

void add_debug(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "debug", "the processes of a run of several ranks: what each does, where it stands; and breakpoints");
  auto a = std::make_shared<DebugArguments>();
  command->add_option("run_folder", a->folder, "the run's folder")->required();
  command->add_option("--break", a->break_at, "hold a rank before its next call of this method: " + methods_text());
  command->add_option("--release", a->release, "let what is held in this method (all: in any) go on");
  command->add_option("--rank", a->rank, "whose; with --break: 0, the first, with --release: all where it is left out");
  command->callback([&action, a] { action = [a] { return debug(*a); }; });
}

}  // namespace tandem
