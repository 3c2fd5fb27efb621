#include "control/pulse.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace tandem {
namespace {

constexpr int kOrphaned = 3;  // exit code

}  // namespace

std::unique_ptr<Pulse> Pulse::from_environment() {
  const char* place = std::getenv(kVariable);
  int socket = -1;
  long period = 0;
  if (place == nullptr || std::sscanf(place, "%d:%ld", &socket, &period) != 2 || period <= 0) return nullptr;
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);  // not for the worker's own children
  return std::make_unique<Pulse>(socket, std::chrono::milliseconds(period));
}

Pulse::Pulse(int socket, std::chrono::milliseconds period)
    : socket_(socket), period_(period), thread_([this] { beat(); }) {}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  ::close(socket_);
}

void Pulse::doing(std::string_view what) {
  {
    const std::lock_guard lock(mutex_);
    doing_ = what;
    told_ = false;
  }
  changed_.notify_one();
}

void Pulse::ask(std::function<std::string()> waits_for) {
  const std::lock_guard lock(mutex_);
  waits_for_ = std::move(waits_for);
}

void Pulse::beat() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::string words = doing_;
    const auto waits_for = waits_for_;
    told_ = true;
    lock.unlock();
    if (const std::string what = waits_for ? waits_for() : ""; !what.empty())
      words += ", in the exchange '" + what + "'";
    const ssize_t sent = ::send(socket_, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) ::_exit(kOrphaned);
    lock.lock();
    changed_.wait_for(lock, period_, [this] { return stopping_ || !told_; });
  }
}

}  // namespace tandem
