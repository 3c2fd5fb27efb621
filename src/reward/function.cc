#include "reward/function.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/error.h"
#include "base/file.h"
#include "reward/function_script.h"

namespace tandem {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStartLimit{120};     // Python and the imports of the user's file
constexpr std::chrono::milliseconds kEndGrace{500};  // from closing its side to the end of the process

}  // namespace

class PythonWorker {
 public:
  enum class State {
    kStopped,
    kStarting,  // its file is being imported
    kIdle,
    kBusy,  // has one sample
  };

  ChildProcess process;
  State state = State::kStopped;
  Clock::time_point deadline;  // while starting or busy
  RewardRequest request;       // while busy
  std::string line;
  std::promise<RewardResult> result;
  bool asked_before = false;
};

namespace {

using State = PythonWorker::State;
using Workers = std::vector<std::unique_ptr<PythonWorker>>;

std::string python_program() {
  const char* chosen = std::getenv("TANDEM_PYTHON");
  return chosen && *chosen ? chosen : "python3";
}

bool waits(const PythonWorker& worker) { return worker.state == State::kStarting || worker.state == State::kBusy; }

[[noreturn]] void fail_to_load(const RewardOptions& options, const std::string& reason) {
  throw ConfigError(fmt::format("reward.custom_reward_function: cannot load '{}' from {}: {}", options.name,
                                options.path.string(), reason));
}

std::string request_line(const RewardRequest& request) {
  json extra_info = json::object();
  if (!request.extra_info.empty()) {
    extra_info = json::parse(request.extra_info, nullptr, /*allow_exceptions=*/false);
    if (!extra_info.is_object())
      throw DataError(fmt::format("{}: its extra_info is no JSON object; correct the row", sample_name(request)));
  }
  const json line = {{"data_source", request.data_source},
                     {"solution_str", request.solution_str},
                     {"ground_truth", request.ground_truth},
                     {"extra_info", extra_info}};
  return line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

// Waits until a worker can be read or written, the next deadline has passed, or `wake_fd` can be read.
void wait_for_any(const Workers& workers, int wake_fd) {
  std::vector<pollfd> polled{{wake_fd, POLLIN, 0}};
  auto wake = Clock::time_point::max();
  for (const auto& worker : workers) {
    if (!waits(*worker)) continue;
    const int events = worker->process.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({worker->process.fd(), static_cast<short>(events), 0});
    wake = std::min(wake, worker->deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  uint64_t ignored = 0;
  [[maybe_unused]] const auto got = ::read(wake_fd, &ignored, sizeof(ignored));
}

void wake(int wake_fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const auto sent = ::write(wake_fd, &one, sizeof(one));
}

// What a waiting worker has to tell; nothing when it is still at work.
struct Report {
  json answer;          // {"ready"}, {"score", "extra"} or {"error"}
  bool ended = false;   // the process is gone or had to be killed; `answer` holds the reason as an error
  bool killed = false;  // from outside
};

std::optional<Report> ask(PythonWorker* worker, const RewardOptions& options) {
  worker->process.flush();
  std::vector<std::string> lines;
  const bool open = worker->process.receive(&lines);
  if (!lines.empty()) return Report{json::parse(lines.front()), false};
  if (!open) {
    const std::string how = worker->process.stop(kEndGrace);
    const bool killed = how == fmt::format("signal {}", SIGKILL) || how == fmt::format("signal {}", SIGTERM);
    return Report{{{"error", "its Python process ended by itself (" + how + ")"}}, true, killed};
  }
  if (Clock::now() < worker->deadline) return std::nullopt;
  worker->process.stop();
  const double limit =
      worker->state == State::kBusy ? options.timeout_seconds : std::chrono::duration<double>(kStartLimit).count();
  return Report{{{"error", fmt::format("it took more than {} s and was killed", limit)}}, true};
}

RewardResult result_of(const json& answer) {
  RewardResult result{answer.at("score").get<double>(), {}};
  for (const json& entry : answer.at("extra"))
    result.extra.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<double>());
  return result;
}

// Of an idle worker, which may have been killed meanwhile; it is started anew then.
bool still_there(PythonWorker* worker) {
  std::vector<std::string> ignored;
  if (worker->process.receive(&ignored)) return true;
  worker->process.stop();
  worker->state = State::kStopped;
  return false;
}

// Takes a started worker's first word.
void finish_start(PythonWorker* worker, const Report& report, const RewardOptions& options) {
  if (report.answer.contains("error")) fail_to_load(options, report.answer["error"].get<std::string>());
  worker->state = State::kIdle;
}

}  // namespace

PythonReward::PythonReward(const RewardOptions& options) : options_(options) {
  if (options.num_workers == 0) throw ConfigError("reward.num_workers is 0; it must be at least 1");
  if (!(options.timeout_seconds > 0)) throw ConfigError("the time limit of the reward function must be above 0 s");
  if (!std::filesystem::is_regular_file(options.path))
    throw ConfigError(fmt::format("reward.custom_reward_function.path={} is not a file", options.path.string()));
  if (!options.reward_kwargs.empty() && !json::parse(options.reward_kwargs, nullptr, false).is_object())
    throw ConfigError("reward.custom_reward_function.reward_kwargs must be a JSON object");
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) throw IoError(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
  try {
    for (size_t i = 0; i < options.num_workers; ++i) {
      workers_.push_back(std::make_unique<PythonWorker>());
      start(workers_.back().get());
    }
    const auto is_starting = [](const auto& worker) { return worker->state == State::kStarting; };
    while (std::any_of(workers_.begin(), workers_.end(), is_starting)) {
      wait_for_any(workers_, wake_fd_);
      for (const auto& worker : workers_) {
        if (!is_starting(worker)) continue;
        if (const auto report = ask(worker.get(), options_)) finish_start(worker.get(), *report, options_);
      }
    }
    service_ = std::thread([this] { serve(); });
  } catch (...) {
    ::close(wake_fd_);
    throw;
  }
}

PythonReward::~PythonReward() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake(wake_fd_);
  service_.join();
  ::close(wake_fd_);
}

void PythonReward::start(PythonWorker* worker) {
  const std::string kwargs = options_.reward_kwargs.empty() ? "{}" : options_.reward_kwargs;
  worker->process =
      ChildProcess({python_program(), "-u", "-c", kFunctionScript, options_.path.string(), options_.name, kwargs});
  worker->state = State::kStarting;
  worker->deadline = Clock::now() + kStartLimit;
}

std::future<RewardResult> PythonReward::submit(RewardRequest request) {
  Job job{std::move(request), {}, {}, false};
  auto result = job.result.get_future();
  try {
    job.line = request_line(job.request);
  } catch (const DataError&) {
    job.result.set_exception(std::current_exception());
    return result;
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  wake(wake_fd_);
  return result;
}

void PythonReward::serve() {
  for (;;) {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
      }
      give_out();
      wait_for_any(workers_, wake_fd_);
      for (const auto& worker : workers_)
        if (waits(*worker)) take(worker.get());
    } catch (...) {  // Python cannot be started any more, or the file cannot be loaded
      fail_all(std::current_exception());
    }
  }
}

// Each waiting sample to a process without one; starts as many of the stopped ones as there is work for.
void PythonReward::give_out() {
  const auto limit =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_seconds));
  const std::lock_guard lock(mutex_);
  size_t num_starting = 0;
  for (const auto& worker : workers_) {
    if (worker->state == State::kStarting) ++num_starting;
    if (worker->state != State::kIdle || queue_.empty()) continue;
    if (!still_there(worker.get())) continue;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    worker->state = State::kBusy;
    worker->deadline = Clock::now() + limit;
    worker->request = std::move(job.request);
    worker->line = std::move(job.line);
    worker->result = std::move(job.result);
    worker->asked_before = job.asked_before;
    worker->process.send(worker->line);
  }
  for (const auto& worker : workers_) {
    if (worker->state != State::kStopped || queue_.size() <= num_starting) continue;
    start(worker.get());
    ++num_starting;
  }
}

void PythonReward::take(PythonWorker* worker) {
  const auto report = ask(worker, options_);
  if (!report) return;
  if (worker->state == State::kStarting) {
    worker->state = State::kStopped;
    finish_start(worker, *report, options_);
    return;
  }
  worker->state = report->ended ? State::kStopped : State::kIdle;
  if (report->killed && !worker->asked_before) {
    const std::lock_guard lock(mutex_);
    queue_.push_front({std::move(worker->request), std::move(worker->line), std::move(worker->result), true});
    return;
  }
  if (!report->answer.contains("error")) {
    worker->result.set_value(result_of(report->answer));
    return;
  }
  worker->result.set_exception(std::make_exception_ptr(
      DataError(fmt::format("reward of {} failed in {} of {}: {}", sample_name(worker->request), options_.name,
                            options_.path.string(), report->answer["error"].get<std::string>()))));
}

void PythonReward::fail_all(const std::exception_ptr& error) {
  std::deque<Job> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(queue_);
  }
  for (Job& job : waiting) job.result.set_exception(error);
}

}  // namespace tandem
