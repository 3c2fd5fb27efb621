#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "control/pulse.h"
#include "control/runtime.h"
#include "observe/host_info.h"

extern char** environ;

namespace tandem {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kLastLines = 20;     // kept of a worker's standard error
constexpr size_t kLongestLine = 400;  // bytes of such a line
constexpr auto kTurn = 100ms;         // of the watch
constexpr auto kShortTurn = 5ms;      // while a worker is on its way out: its socket is closed, it is not
constexpr auto kSlowestBeat = 1000ms;
constexpr int kBeatsInTime = 5;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Descriptor old(std::exchange(fd_, std::exchange(other.fd_, -1)));
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Ends {
  Descriptor ours, theirs;
};

// Messages stay whole, so one is one sign of life.
Ends socket_ends(int type) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError(std::string("cannot make a socket for a worker: ") + std::strerror(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string ending_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

struct Worker {
  WorkerStatus status;
  Descriptor pulse, errors;
  std::string line;  // of standard error, not yet whole
  std::deque<std::string> last_lines;
  Clock::time_point last_sign, doing_since;

  bool runs() const { return status.ending.empty(); }
};

constexpr int kPulseInChild = 3;

pid_t spawn(const WorkerSpec& spec, int pulse, int errors, std::chrono::milliseconds period) {
  std::vector<char*> arguments;
  for (const std::string& word : spec.arguments) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<std::string> own = spec.environment;
  own.push_back(fmt::format("{}={}:{}", Pulse::kVariable, kPulseInChild, period.count()));
  const auto replaced = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    for (const std::string& mine : own)
      if (std::string_view(mine).starts_with(name)) return true;
    return false;
  };
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!replaced(*entry)) environment.push_back(*entry);
  for (std::string& entry : own) environment.push_back(entry.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pulse, kPulseInChild);
  if (!spec.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, spec.folder.c_str());
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, spec.program.c_str(), &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw IoError(fmt::format("cannot start {}: {}", spec.program, std::strerror(error)));
  return pid;
}

class LocalProcesses final : public Runtime {
 public:
  explicit LocalProcesses(const LocalOptions& options) : options_(options) {}
  ~LocalProcesses() override { end(0ms); }

  std::string_view name() const override { return "local processes"; }

  void start(const std::vector<WorkerSpec>& specs) override {
    check(workers_.empty(), "a group runs already");
    if (specs.empty()) return;
    const std::lock_guard lock(mutex_);
    ending_ = false;
    lost_.reset();
    const auto period = std::min<std::chrono::milliseconds>(options_.heartbeat_timeout / kBeatsInTime, kSlowestBeat);
    try {
      for (const WorkerSpec& spec : specs) workers_.push_back(start_one(spec, std::max(period, 1ms)));
    } catch (...) {
      kill_all();
      for (Worker& worker : workers_) ::waitpid(worker.status.pid, nullptr, 0);
      workers_.clear();
      throw;
    }
    watch_ = std::thread([this] { watch(); });
  }

  std::vector<WorkerStatus> workers() const override {
    const std::lock_guard lock(mutex_);
    std::vector<WorkerStatus> all;
    for (const Worker& worker : workers_) all.push_back(status_of(worker));
    return all;
  }

  std::optional<WorkerStatus> lost() const override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  void end(std::chrono::milliseconds grace) override {
    {
      std::unique_lock lock(mutex_);
      if (workers_.empty()) return;
      ending_ = true;
      ended_.wait_for(lock, grace, [this] { return none_runs(); });
      kill_all();
    }
    watch_.join();
    const std::lock_guard lock(mutex_);
    workers_.clear();
    lost_.reset();
  }

  bool try_out(const std::vector<WorkerSpec>& specs, std::chrono::milliseconds patience) override {
    try {
      LocalProcesses beside(options_);
      beside.start(specs);
      std::unique_lock lock(beside.mutex_);
      return beside.ended_.wait_for(lock, patience, [&] { return beside.none_runs(); }) && !beside.lost_;
    } catch (const IoError&) {
      return false;
    }
  }

 private:
  Worker start_one(const WorkerSpec& spec, std::chrono::milliseconds period) {
    Ends pulse = socket_ends(SOCK_SEQPACKET), errors = socket_ends(SOCK_STREAM);
    Worker worker;
    worker.status.role = spec.role;
    worker.status.device = spec.device;
    worker.status.rank = spec.rank;
    worker.status.host = host_name();
    worker.status.pid = spawn(spec, pulse.theirs.get(), errors.theirs.get(), period);
    worker.pulse = std::move(pulse.ours);
    worker.errors = std::move(errors.ours);
    worker.last_sign = worker.doing_since = Clock::now();
    return worker;
  }

  static WorkerStatus status_of(const Worker& worker) {
    WorkerStatus status = worker.status;
    const auto now = Clock::now();
    const auto seconds = [&](Clock::time_point since) { return std::chrono::duration<double>(now - since).count(); };
    status.quiet_seconds = seconds(worker.last_sign);
    status.doing_seconds = seconds(worker.doing_since);
    status.last_lines.assign(worker.last_lines.begin(), worker.last_lines.end());
    return status;
  }

  bool none_runs() const {
    return std::ranges::none_of(workers_, [](const Worker& worker) { return worker.runs(); });
  }

  void kill_all() {
    for (const Worker& worker : workers_)
      if (worker.runs()) ::kill(worker.status.pid, SIGKILL);
  }

  // Until all have ended.
  void watch() {
    auto last_turn = Clock::now();
    for (;;) {
      wait_for_any();
      const std::lock_guard lock(mutex_);
      const auto now = Clock::now();
      // Where this process itself was stopped, the others' silence says nothing.
      if (now - last_turn > options_.heartbeat_timeout / 2)
        for (Worker& worker : workers_) worker.last_sign = now;
      last_turn = now;
      for (Worker& worker : workers_)
        if (worker.runs()) look_at(worker, now);
      if (!none_runs()) continue;
      ended_.notify_all();
      return;
    }
  }

  void wait_for_any() {
    std::vector<pollfd> polled;  // poll() passes over what is closed
    auto turn = std::min<std::chrono::milliseconds>(kTurn, options_.heartbeat_timeout / 10);
    {
      const std::lock_guard lock(mutex_);
      for (const Worker& worker : workers_) {
        if (!worker.runs()) continue;
        polled.push_back({worker.pulse.get(), POLLIN, 0});
        polled.push_back({worker.errors.get(), POLLIN, 0});
        if (worker.pulse.get() < 0) turn = kShortTurn;
      }
    }
    ::poll(polled.data(), polled.size(), static_cast<int>(turn.count()));
  }

  void look_at(Worker& worker, Clock::time_point now) {
    read_pulse(worker, now);
    read_errors(worker);
    int status = 0;
    if (::waitpid(worker.status.pid, &status, WNOHANG) == worker.status.pid) {
      read_errors(worker);
      if (!worker.line.empty()) keep_line(worker);
      worker.status.ending = ending_text(status);
      if (worker.status.state == WorkerState::kHung) return;
      worker.status.state = WorkerState::kEnded;
      if (!ending_ && status != 0) lose(worker);
      return;
    }
    const bool started = worker.status.state != WorkerState::kStarting;
    const auto patience =
        started ? options_.heartbeat_timeout : std::max(options_.heartbeat_timeout, options_.start_timeout);
    if (ending_ || worker.status.state == WorkerState::kHung || now - worker.last_sign < patience) return;
    worker.status.state = WorkerState::kHung;
    lose(worker);
  }

  void lose(const Worker& worker) {
    if (lost_) return;
    lost_ = status_of(worker);
    kill_all();  // a stopped process too; who waits for any of them hears of it
  }

  static void read_pulse(Worker& worker, Clock::time_point now) {
    char words[256];
    for (;;) {
      const ssize_t got = ::recv(worker.pulse.get(), words, sizeof(words), 0);
      if (got == 0) worker.pulse = Descriptor();
      if (got <= 0) return;
      worker.last_sign = now;
      if (worker.status.state == WorkerState::kStarting) worker.status.state = WorkerState::kRunning;
      const std::string_view doing(words, static_cast<size_t>(got));
      if (doing == worker.status.doing) continue;
      worker.status.doing = doing;
      worker.doing_since = now;
    }
  }

  // Kept, and passed on as they come.
  static void read_errors(Worker& worker) {
    char bytes[4096];
    for (;;) {
      const ssize_t got = ::recv(worker.errors.get(), bytes, sizeof(bytes), 0);
      if (got == 0) worker.errors = Descriptor();
      if (got <= 0) return;
      [[maybe_unused]] const auto passed_on = ::write(STDERR_FILENO, bytes, static_cast<size_t>(got));
      for (ssize_t i = 0; i < got; ++i) {
        if (bytes[i] != '\n') {
          if (worker.line.size() < kLongestLine) worker.line += bytes[i];
          continue;
        }
        keep_line(worker);
      }
    }
  }

  static void keep_line(Worker& worker) {
    worker.last_lines.push_back(std::exchange(worker.line, {}));
    if (worker.last_lines.size() > kLastLines) worker.last_lines.pop_front();
  }

  const LocalOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Worker> workers_;
  std::optional<WorkerStatus> lost_;
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace

std::unique_ptr<Runtime> local_processes(const LocalOptions& options) {
  return std::make_unique<LocalProcesses>(options);
}

}  // namespace tandem
