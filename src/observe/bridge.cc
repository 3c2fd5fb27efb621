#include "observe/bridge.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/child_process.h"
#include "base/error.h"
#include "base/log.h"
#include "observe/bridge_script.h"

namespace tandem {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kEndGrace{2};  // from its last word to the end of the process

std::string python_program() {
  const char* chosen = std::getenv("TANDEM_PYTHON");
  return chosen != nullptr && *chosen != '\0' ? chosen : "python3";
}

std::string start_line(const BridgeOptions& options) {
  json config = json::object();
  for (const auto& [key, value] : options.config) config[key] = value;
  const json line{{"service", options.service},        {"project", options.project}, {"experiment", options.experiment},
                  {"folder", options.folder.string()}, {"resume", options.resume},   {"config", std::move(config)}};
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

void wait_for(int wake_fd, const ChildProcess& child, std::chrono::milliseconds limit) {
  const int events = child.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  pollfd polled[] = {{wake_fd, POLLIN, 0}, {child.fd(), static_cast<short>(events), 0}};
  ::poll(polled, 2, static_cast<int>(limit.count()));
  uint64_t ignored = 0;
  [[maybe_unused]] const auto got = ::read(wake_fd, &ignored, sizeof(ignored));
}

// What the child has said: nothing bad, that it is done, or why it cannot go on.
struct Heard {
  bool done = false;
  std::string trouble;
};

Heard hear(ChildProcess& child, const std::string& service) {
  std::vector<std::string> lines;
  const bool open = child.receive(&lines);
  Heard heard;
  for (const std::string& line : lines) {
    const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) continue;
    if (answer.contains("finished")) heard.done = true;
    if (const auto url = answer.find("url"); url != answer.end() && url->is_string())
      log_info(fmt::format("{}: {}", service, url->get<std::string>()));
    if (const auto error = answer.find("error"); error != answer.end() && error->is_string())
      heard.trouble = error->get<std::string>();
  }
  if (!open && !heard.done && heard.trouble.empty())
    heard.trouble = "its process ended: " + child.stop(std::chrono::seconds(1));
  return heard;
}

}  // namespace

BridgeSink::BridgeSink(BridgeOptions options)
    : options_(std::move(options)), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(wake_fd_ >= 0, "eventfd");
  thread_ = std::thread([this] { serve(); });
}

BridgeSink::~BridgeSink() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const auto sent = ::write(wake_fd_, &one, sizeof(one));
  thread_.join();
  ::close(wake_fd_);
}

void BridgeSink::log(int64_t step, const Metrics& metrics) {
  std::string line = fmt::format("{{\"step\":{},\"metrics\":{}}}", step, to_json(metrics));
  bool drops = false;
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) return;
    if (queue_.size() < options_.most_queued) {
      queue_.push_back(std::move(line));
    } else {
      drops = !std::exchange(warned_of_drop_, true);
    }
  }
  if (drops)
    log_warn(fmt::format("trainer.logger: {} does not keep up; it is left without some steps, metrics.jsonl has them",
                         options_.service));
  const uint64_t one = 1;
  [[maybe_unused]] const auto sent = ::write(wake_fd_, &one, sizeof(one));
}

void BridgeSink::give_up(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    queue_.clear();
  }
  log_warn(
      fmt::format("trainer.logger: {} gets no more metrics: {}; metrics.jsonl has everything", options_.service, why));
}

void BridgeSink::serve() {
  ChildProcess child;
  try {
    child = ChildProcess({python_program(), "-c", kBridgeScript});
  } catch (const Error& error) {
    return give_up(error.what());
  }
  child.send(start_line(options_));
  bool told_to_finish = false;
  auto deadline = Clock::time_point::max();
  for (;;) {
    {
      // No more than the socket takes: what a stuck child does not read waits where it is counted.
      const std::lock_guard lock(mutex_);
      for (; !queue_.empty() && !child.has_unsent(); queue_.pop_front()) child.send(std::move(queue_.front()));
      if (closing_ && deadline == Clock::time_point::max()) deadline = Clock::now() + options_.finish_limit;
      if (closing_ && queue_.empty() && !std::exchange(told_to_finish, true)) child.send("{\"finish\":true}");
    }
    child.flush();
    const Heard heard = hear(child, options_.service);
    if (heard.done) {
      child.stop(kEndGrace);
      return;
    }
    if (!heard.trouble.empty()) return give_up(heard.trouble);
    if (Clock::now() >= deadline)
      return give_up(fmt::format("it has not finished within {} s of the run's end",
                                 std::chrono::duration<double>(options_.finish_limit).count()));
    const auto left = deadline == Clock::time_point::max()
                          ? std::chrono::milliseconds(60'000)
                          : std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    wait_for(wake_fd_, child, std::clamp(left, std::chrono::milliseconds(1), std::chrono::milliseconds(60'000)));
  }
}

}  // namespace tandem
