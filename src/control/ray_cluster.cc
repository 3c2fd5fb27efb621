#include "control/ray_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"

extern char** environ;

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartTimeout = 300s;
constexpr auto kEndTimeout = 10s;

// The address that others reach this machine by; Ray takes no loopback. No packet is sent.
std::string own_address() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(53);
  ::inet_pton(AF_INET, "8.8.8.8", &to.sin_addr);
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0)
    ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
  ::close(fd);
  return text;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof(any);
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&any), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size) == 0;
  ::close(fd);
  if (!bound) throw IoError("no free port for Ray");
  return ntohs(any.sin_port);
}

// What `ray start` says once its node is known to the cluster; whoever connects before is turned away.
bool has_started(const std::string& log) {
  std::ifstream file(log);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str().find("Ray runtime started") != std::string::npos;
}

std::string ray_program() {
  const char* venv = std::getenv("TANDEM_RAY");
  return venv != nullptr && *venv != 0 ? std::string(venv) + "/bin/ray" : "ray";
}

}  // namespace

RayCluster::RayCluster() {
  char folder[] = "/tmp/tandem_ray_XXXXXX";  // short: Ray's sockets lie in it
  if (::mkdtemp(folder) == nullptr) throw IoError("cannot make a folder in /tmp for Ray");
  folder_ = folder;
  const std::string host = own_address();
  const int port = free_port();
  address_ = fmt::format("{}:{}", host, port);
  // setpriv: a run that is killed takes its Ray along.
  std::vector<std::string> words{"setpriv",
                                 "--pdeathsig",
                                 "TERM",
                                 ray_program(),
                                 "start",
                                 "--head",
                                 "--block",
                                 "--node-ip-address=" + host,
                                 fmt::format("--port={}", port),
                                 "--num-cpus=64",
                                 "--include-dashboard=false",
                                 "--disable-usage-stats",
                                 "--object-store-memory=100000000",
                                 "--temp-dir=" + folder_};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::string nice = "RAY_worker_niceness=0", unbuffered = "PYTHONUNBUFFERED=1";
  std::vector<char*> environment{nice.data(), unbuffered.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);

  const std::string log = folder_ + "/start.log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);  // Ctrl-C is the run's, which then ends Ray itself
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw ConfigError(fmt::format("cannot start {}: {}", arguments[0], std::strerror(error)));
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (!has_started(log)) {
    const bool gone = ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    if (gone) pid_ = -1;
    if (gone || std::chrono::steady_clock::now() > deadline) {
      end();
      throw ConfigError(fmt::format(
          "Ray did not start on {}: {} says why; ./dev setup ray fetches one, and TANDEM_RAY names its folder",
          address_, log));
    }
    std::this_thread::sleep_for(50ms);
  }
}

RayCluster::~RayCluster() {
  end();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

// `ray start --block` ends its processes with itself; what is left of its process group is ended here.
void RayCluster::end() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
  bool gone = false;
  while (!(gone = ::waitpid(pid_, nullptr, WNOHANG) == pid_) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(20ms);
  ::kill(-pid_, SIGKILL);
  if (!gone) ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace tandem
