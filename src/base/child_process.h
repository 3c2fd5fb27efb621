// A child process spoken to by lines over a socket that is its standard input and the answer's way back; its standard
// output goes where our standard error goes. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tandem {

class ChildProcess {
 public:
  ChildProcess() = default;
  // Starts `arguments[0]`, found by PATH, in a process group of its own. IoError when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  bool running() const { return pid_ > 0; }
  int fd() const { return fd_; }  // to poll; never blocks
  bool has_unsent() const { return !unsent_.empty(); }

  void send(std::string line);  // queues `line` and a line break, sends what fits now
  void flush();                 // sends more, once fd() is writable
  // Adds the whole lines that have come, without their ends. False once the child has closed its side.
  bool receive(std::vector<std::string>* lines);

  // Kills the process group and waits for the child, which has `grace` to end by itself before. Returns how it ended:
  // "exit code 3", "signal 11", "killed".
  std::string stop(std::chrono::milliseconds grace = {});

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string unsent_, received_;
};

}  // namespace tandem
