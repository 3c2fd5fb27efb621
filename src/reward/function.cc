#include "reward/function.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "reward/child_process.h"
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
  size_t sample = 0;           // while busy: index of the request
  Clock::time_point deadline;  // while starting or busy
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

// Waits until a worker can be read or written, or the next deadline has passed.
void wait_for_any(const Workers& workers) {
  std::vector<pollfd> polled;
  auto wake = Clock::time_point::max();
  for (const auto& worker : workers) {
    if (!waits(*worker)) continue;
    const int events = worker->process.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({worker->process.fd(), static_cast<short>(events), 0});
    wake = std::min(wake, worker->deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
}

// What a waiting worker has to tell; nothing when it is still at work.
struct Report {
  json answer;         // {"ready"}, {"score", "extra"} or {"error"}
  bool ended = false;  // the process is gone or had to be killed; `answer` holds the reason as an error
};

std::optional<Report> ask(PythonWorker* worker, const RewardOptions& options) {
  worker->process.flush();
  std::vector<std::string> lines;
  const bool open = worker->process.receive(&lines);
  if (!lines.empty()) return Report{json::parse(lines.front()), false};
  if (!open)
    return Report{{{"error", "its Python process ended by itself (" + worker->process.stop(kEndGrace) + ")"}}, true};
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
  for (size_t i = 0; i < options.num_workers; ++i) {
    workers_.push_back(std::make_unique<PythonWorker>());
    start(workers_.back().get());
  }
  const auto is_starting = [](const auto& worker) { return worker->state == State::kStarting; };
  while (std::any_of(workers_.begin(), workers_.end(), is_starting)) {
    wait_for_any(workers_);
    for (const auto& worker : workers_) {
      if (!is_starting(worker)) continue;
      if (const auto report = ask(worker.get(), options_)) finish_start(worker.get(), *report, options_);
    }
  }
}

PythonReward::~PythonReward() = default;

void PythonReward::start(PythonWorker* worker) {
  const std::string kwargs = options_.reward_kwargs.empty() ? "{}" : options_.reward_kwargs;
  worker->process =
      ChildProcess({python_program(), "-u", "-c", kFunctionScript, options_.path.string(), options_.name, kwargs});
  worker->state = State::kStarting;
  worker->deadline = Clock::now() + kStartLimit;
}

void PythonReward::stop_busy() {
  for (const auto& worker : workers_) {
    if (worker->state != State::kBusy) continue;
    worker->process.stop();
    worker->state = State::kStopped;
  }
}

std::vector<RewardResult> PythonReward::score(std::span<const RewardRequest> requests) {
  const std::lock_guard lock(mutex_);
  try {
    return score_all(requests);
  } catch (...) {
    stop_busy();  // their answers belong to nobody now
    throw;
  }
}

std::vector<RewardResult> PythonReward::score_all(std::span<const RewardRequest> requests) {
  std::vector<RewardResult> results(requests.size());
  std::map<size_t, std::string> failures;  // by request
  size_t next = 0;
  const auto limit =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_seconds));
  const auto more = [&] { return next < requests.size() && failures.empty(); };
  const auto give = [&](PythonWorker* worker) {
    worker->process.send(request_line(requests[next]));
    worker->state = State::kBusy;
    worker->sample = next++;
    worker->deadline = Clock::now() + limit;
  };
  const auto is_busy = [](const auto& worker) { return worker->state == State::kBusy; };

  // After a failure nothing new is given out, but what is under way ends: so the smallest failing request, which is
  // the one reported, does not depend on timing.
  while (more() || std::any_of(workers_.begin(), workers_.end(), is_busy)) {
    for (const auto& worker : workers_) {
      if (more() && worker->state == State::kStopped) start(worker.get());
      if (more() && worker->state == State::kIdle) give(worker.get());
    }
    wait_for_any(workers_);
    for (const auto& worker : workers_) {
      if (!waits(*worker)) continue;
      const auto report = ask(worker.get(), options_);
      if (!report) continue;
      if (worker->state == State::kStarting) {
        finish_start(worker.get(), *report, options_);
        continue;
      }
      worker->state = report->ended ? State::kStopped : State::kIdle;
      if (report->answer.contains("error"))
        failures[worker->sample] = report->answer["error"].get<std::string>();
      else
        results[worker->sample] = result_of(report->answer);
    }
  }
  if (failures.empty()) return results;
  const auto& [sample, reason] = *failures.begin();
  throw DataError(fmt::format("reward of {} failed in {} of {}: {}", sample_name(requests[sample]), options_.name,
                              options_.path.string(), reason));
}

}  // namespace tandem
