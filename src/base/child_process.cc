#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace tandem {
namespace {

[[noreturn]] void fail_start(const std::string& program, int code) {
  throw IoError(fmt::format("cannot start {}: {}", program, std::strerror(code)));
}

// posix_spawn rather than fork: the parent has threads.
pid_t spawn(const std::vector<std::string>& arguments, int socket) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, standard;
  sigemptyset(&none);
  sigemptyset(&standard);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) sigaddset(&standard, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &standard);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  pid_t pid = -1;
  const int code = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) fail_start(arguments[0], code);
  return pid;
}

// Without waiting for it: it stays a zombie.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_start(arguments[0], errno);
  fd_ = ends[0];
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  try {
    pid_ = spawn(arguments, ends[1]);
  } catch (...) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(fd_, other.fd_);
  std::swap(unsent_, other.unsent_);
  std::swap(received_, other.received_);
  return *this;
}

ChildProcess::~ChildProcess() { stop(); }

void ChildProcess::send(std::string line) {
  unsent_ += line;
  unsent_ += '\n';
  flush();
}

void ChildProcess::flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) unsent_.clear();  // the child is gone; receive() will tell
    if (sent > 0) unsent_.erase(0, static_cast<size_t>(sent));
  }
}

bool ChildProcess::receive(std::vector<std::string>* lines) {
  bool open = true;
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    open = got > 0;
    if (!open) break;
    received_.append(buffer, static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end; (end = received_.find('\n', begin)) != received_.npos; begin = end + 1)
    lines->push_back(received_.substr(begin, end - begin));
  received_.erase(0, begin);
  return open;
}

std::string ChildProcess::stop(std::chrono::milliseconds grace) {
  if (!running()) return "not running";
  const pid_t pid = std::exchange(pid_, -1);
  ::close(std::exchange(fd_, -1));
  unsent_.clear();
  received_.clear();
  const auto deadline = std::chrono::steady_clock::now() + grace;
  while (!has_ended(pid) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const bool by_itself = has_ended(pid);
  // The group's id stays taken until the child has been waited for, so this cannot hit a stranger.
  ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!by_itself) return "killed";
  return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                             : fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace tandem
