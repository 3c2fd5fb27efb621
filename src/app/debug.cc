// tandem debug: the processes of a run, what each does, and where those stand that do nothing.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/command.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "control/worker_json.h"
#include "observe/host_info.h"

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

int debug(const std::string& folder) {
  const fs::path path = fs::path(folder) / "workers.json";
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
  auto* command =
      app.add_subcommand("debug", "the processes of a run of several ranks: what each does, where it stands");
  auto folder = std::make_shared<std::string>();
  command->add_option("run_folder", *folder, "the run's folder")->required();
  command->callback([&action, folder] { action = [folder] { return debug(*folder); }; });
}

}  // namespace tandem
