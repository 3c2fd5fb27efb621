#include "observe/trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/file.h"
#include "observe/json_text.h"

namespace tandem {
namespace {

constexpr std::string_view kPhases = "phases", kWork = "work", kResponses = "responses";

bool is_sampling(std::string_view phase) { return phase.starts_with("gen") || phase == "testing"; }

double microseconds(TraceRecorder::Clock::duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

void append_text(std::string& out, const char* key, std::string_view text) {
  out.append(",\"").append(key).append("\":");
  append_json_string(out, text);
}

void append_number(std::string& out, const char* key, double value) {
  out.append(",\"").append(key).append("\":");
  append_json_number(out, value);
}

void append_name(std::string& out, const char* kind, int rank, size_t lane, std::string_view name) {
  out.append(",\n{\"ph\":\"M\",\"name\":\"").append(kind).append("\",\"pid\":" + std::to_string(rank));
  out += ",\"tid\":" + std::to_string(lane) + ",\"args\":{\"name\":";
  append_json_string(out, name);
  out += "}}";
}

}  // namespace

void TraceRecorder::open(std::string_view phase, Clock::time_point at) {
  const std::lock_guard lock(mutex_);
  open_.push_back({std::string(phase), at, at});
}

void TraceRecorder::close(std::string_view phase, Clock::time_point at) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) { return open.phase == phase; });
  if (found == open_.rend()) return;
  events_.push_back({std::string(kPhases), std::string(phase), found->since, at, {}, false});
  open_.erase(std::next(found).base());
}

void TraceRecorder::span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                         const Metrics& arguments) {
  const std::lock_guard lock(mutex_);
  events_.push_back({std::string(lane), std::string(name), begin, end, arguments, false});
}

void TraceRecorder::work_done(int64_t tokens) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (open_.empty()) return;
  Open& phase = open_.back();
  Metrics arguments;
  arguments.set("tokens", static_cast<double>(tokens));
  if (is_sampling(phase.phase)) {
    events_.push_back({std::string(kResponses), "response", now, now, arguments, true});
  } else {
    events_.push_back({std::string(kWork), phase.phase + " micro-batch", phase.last_work, now, arguments, false});
  }
  phase.last_work = now;
}

void TraceRecorder::append_event(std::string& out, const Event& event, size_t lane) const {
  out += std::string(",\n{\"ph\":\"") + (event.instant ? "i\",\"s\":\"t\"" : "X\"");
  append_text(out, "name", event.name);
  append_text(out, "cat", event.lane);
  append_number(out, "ts", microseconds(event.begin - start_));
  if (!event.instant) append_number(out, "dur", microseconds(event.end - event.begin));
  out += ",\"pid\":" + std::to_string(rank_) + ",\"tid\":" + std::to_string(lane);
  if (!event.arguments.empty()) out += ",\"args\":" + to_json(event.arguments);
  out += '}';
}

std::string TraceRecorder::events() const {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::vector<Event> events = events_;
  for (const Open& open : open_) events.push_back({std::string(kPhases), open.phase, open.since, now, {}, false});
  // An outer phase before its inner ones: viewers nest by order.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::map<std::string, size_t> lanes;
  for (const Event& event : events) lanes.emplace(event.lane, 0);
  std::string out;
  append_name(out, "process_name", rank_, 0, "rank " + std::to_string(rank_));
  size_t next = 0;
  for (auto& [lane, number] : lanes) append_name(out, "thread_name", rank_, number = next++, lane);
  for (const Event& event : events) append_event(out, event, lanes.at(event.lane));
  return out;
}

void TraceRecorder::add_events(std::string events) {
  const std::lock_guard lock(mutex_);
  other_ranks_.push_back(std::move(events));
}

void TraceRecorder::write(const std::filesystem::path& path) const {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"step\":" + std::to_string(step_) +
                    "},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"tid\":0,\"args\":{}}";
  out += events();
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& other : other_ranks_) out += other;
  }
  write_file_atomic(path, out + "\n]}\n");
}

}  // namespace tandem
