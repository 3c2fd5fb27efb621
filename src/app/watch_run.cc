#include "app/watch_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "app/interrupt.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

std::unique_ptr<Dashboard> dashboard_of(const RunConfig& config, const std::filesystem::path& folder) {
  if (!config.dashboard.port) return nullptr;
  auto dashboard = std::make_unique<Dashboard>(
      DashboardOptions{{folder}, config.dashboard.host, static_cast<int>(*config.dashboard.port), tokenizer_texts()},
      "trainer.dashboard.port");
  log_info("dashboard: " + dashboard->url());
  return dashboard;
}

std::optional<Tokenizer> read_tokenizer(const std::string& model) {
  try {
    return Tokenizer::from_folder(resolve_model(model));
  } catch (const Error&) {  // the model is elsewhere: samples are shown without their tokens
    return std::nullopt;
  }
}

}  // namespace

TokenTexts tokenizer_texts() {
  struct Known {
    std::mutex mutex;
    std::map<std::string, std::optional<Tokenizer>> by_model;
  };
  return [known = std::make_shared<Known>()](
             const std::string& model, const std::vector<int32_t>& ids) -> std::optional<std::vector<std::string>> {
    const std::lock_guard lock(known->mutex);
    auto found = known->by_model.find(model);
    if (found == known->by_model.end()) found = known->by_model.emplace(model, read_tokenizer(model)).first;
    const auto& tokenizer = found->second;
    if (!tokenizer || std::ranges::any_of(ids, [](int32_t id) { return id < 0; })) return std::nullopt;
    std::vector<std::string> texts;
    DecodeStream stream = tokenizer->stream(/*skip_special=*/false);
    for (const int32_t id : ids) texts.push_back(stream.push(id));
    if (!texts.empty()) texts.back() += stream.finish();
    return texts;
  };
}

WatchedRun::WatchedRun(const RunConfig& config, std::filesystem::path folder)
    : folder_(std::move(folder)), traced_steps_(config.profile.steps), dashboard_(dashboard_of(config, folder_)) {
  if (!traced_steps_.empty()) slot_ = std::make_shared<TraceSlot>();
}

void WatchedRun::open_log(int64_t step) {
  log_ = std::make_unique<RunLog>(folder_ / "log.jsonl");
  log_->event("start", "info",
              step == 0 ? fmt::format("started (process {})", ::getpid())
                        : fmt::format("went on after step {} (process {})", step, ::getpid()));
}

void WatchedRun::run(RunEnd& end, const int64_t& step, int64_t total_steps, const std::function<void()>& resume,
                     const std::function<void()>& steps) {
  catch_interrupts();
  resume();
  end.folder = folder_;
  open_log(step);
  try {
    steps();
  } catch (const std::exception& error) {
    log_->event("failure", "error", error.what());
    throw;
  }
  end.last_step = step;
  end.interrupted = interrupted() && step < total_steps;
  log_->event("end", "info",
              fmt::format("{} after step {}", end.interrupted ? "stopped by request" : "finished", step));
}

void WatchedRun::begin_step(int64_t step, PhaseTimer& timer) {
  if (std::ranges::find(traced_steps_, step) == traced_steps_.end()) return;
  step_ = step;
  trace_ = std::make_shared<TraceRecorder>(step);
  slot_->set(trace_);
  timer.set_trace(trace_.get());
}

void WatchedRun::end_step(PhaseTimer& timer) {
  if (!trace_) return;
  timer.set_trace(nullptr);
  slot_->set(nullptr);
  try {
    trace_->write(folder_ / fmt::format("trace_step_{}.json", step_));
  } catch (const IoError& error) {
    log_warn(fmt::format("{}; the run goes on without this trace", error.what()));
  }
  trace_.reset();
}

void record_pass(const TraceSlot& trace, const GeneratorPass& pass) {
  const auto recorder = trace.get();
  if (!recorder) return;
  Metrics arguments;
  arguments.set("sequences", static_cast<double>(pass.num_sequences));
  arguments.set("tokens", static_cast<double>(pass.num_tokens));
  arguments.set("drawn", static_cast<double>(pass.num_drawn));
  recorder->span("scheduler", pass.num_tokens > pass.num_drawn ? "prefill" : "decode", pass.begin, pass.end, arguments);
}

}  // namespace tandem
