// A connected socket with limits: how long a request may take to come, how many bytes it may have, how long the client
// may take to read.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

namespace tandem {

class SocketStream {
 public:
  struct Limits {
    size_t max_request_bytes;
    int receive_seconds, send_seconds;
  };
  SocketStream(int fd, Limits limits) : fd_(fd), limits_(limits), buffer_(size_t{16} << 10) {}

  int fd() const { return fd_; }
  // Waits for the first byte of a request; false: none came in that time, or the client is gone.
  bool wait_for_request(int milliseconds) const;
  void begin_request();  // its limits count from here

  ptrdiff_t read(char* data, size_t size);         // -1: broken, too slow or too long; 0: the end
  ptrdiff_t write(const char* data, size_t size);  // -1: broken, or the client does not read
  bool connected() const;                          // the client has not closed
  bool readable() const;
  // Says goodbye so that the client can read the reply although not all it sent was read.
  void close_politely();

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::time_point until) const;

  int fd_;
  Limits limits_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what was received and not read
  size_t received_ = 0;
  Clock::time_point receive_until_{};
};

}  // namespace tandem
