#include "serve/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kFarewell{500};

int milliseconds_to(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace

bool SocketStream::wait(short events, Clock::time_point until) const {
  for (;;) {
    pollfd poll{fd_, events, 0};
    const int found = ::poll(&poll, 1, milliseconds_to(until));
    if (found < 0 && errno == EINTR) continue;
    return found > 0;
  }
}

bool SocketStream::wait_for_request(int milliseconds) const {
  return begin_ < end_ || wait(POLLIN, Clock::now() + std::chrono::milliseconds(milliseconds));
}

void SocketStream::begin_request() {
  received_ = end_ - begin_;
  receive_until_ = Clock::now() + std::chrono::seconds(limits_.receive_seconds);
}

ptrdiff_t SocketStream::read(char* data, size_t size) {
  if (begin_ == end_) {
    if (received_ >= limits_.max_request_bytes || Clock::now() >= receive_until_ || !wait(POLLIN, receive_until_))
      return -1;
    const ssize_t count = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count <= 0) return count < 0 && (errno == EINTR || errno == EAGAIN) ? read(data, size) : count;
    begin_ = 0, end_ = static_cast<size_t>(count);
    received_ += end_;
  }
  const size_t count = std::min(size, end_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, count);
  begin_ += count;
  return static_cast<ptrdiff_t>(count);
}

ptrdiff_t SocketStream::write(const char* data, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    if (!wait(POLLOUT, Clock::now() + std::chrono::seconds(limits_.send_seconds))) return -1;
    const ssize_t count = ::send(fd_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) return -1;
    sent += static_cast<size_t>(count);
  }
  return static_cast<ptrdiff_t>(sent);
}

bool SocketStream::connected() const {
  pollfd poll{fd_, POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) <= 0;
}

bool SocketStream::readable() const { return begin_ < end_ || wait(POLLIN, Clock::now()); }

void SocketStream::close_politely() {
  ::shutdown(fd_, SHUT_WR);
  const auto until = Clock::now() + kFarewell;
  while (wait(POLLIN, until) && Clock::now() < until)
    if (::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) <= 0) break;
  ::close(fd_);
}

}  // namespace tandem
