// A worker's signs of life: a thread tells its runtime, several times within the time it may be quiet, that the process
// runs and what it does. A worker whose runtime is gone ends. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tandem {

class Pulse {
 public:
  // Names the socket and the milliseconds between two signs, "3:200".
  static constexpr const char* kVariable = "TANDEM_PULSE";
  static std::unique_ptr<Pulse> from_environment();  // null where nobody watches this process

  Pulse(int socket, std::chrono::milliseconds period);
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  void doing(std::string_view what);  // told at once
  // Asked at each sign for what this process waits for, which is told too; empty: nothing.
  void ask(std::function<std::string()> waits_for);

 private:
  void beat();

  const int socket_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string doing_ = "start";
  std::function<std::string()> waits_for_;
  bool told_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem
