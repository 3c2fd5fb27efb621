#include "observe/samples_log.h"

#include "observe/json_text.h"

namespace tandem {
namespace {

constexpr size_t kMostWaiting = 20'000;  // samples

void append_text(std::string& out, std::string_view key, std::string_view text) {
  out.append(",\"").append(key).append("\":");
  append_json_string(out, text);
}

void append_number(std::string& out, std::string_view key, double value) {
  out.append(",\"").append(key).append("\":");
  append_json_number(out, value);
}

void append_ids(std::string& out, std::string_view key, const std::vector<int32_t>& ids) {
  out.append(",\"").append(key).append("\":[");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  out += ']';
}

const std::filesystem::path& shortened(const std::filesystem::path& path, std::optional<int64_t> resume_step) {
  if (resume_step) truncate_jsonl_after(path, *resume_step);
  return path;
}

}  // namespace

std::string to_json(const SampleRecord& record) {
  std::string out = "{\"step\":" + std::to_string(record.step);
  append_text(out, "data_source", record.data_source);
  append_text(out, "prompt", record.prompt);
  append_text(out, "response", record.response);
  append_text(out, "ground_truth", record.ground_truth);
  append_number(out, "score", record.score);
  append_number(out, "reward", record.reward);
  append_number(out, "advantage", record.advantage);
  append_text(out, "stop_reason", record.stop_reason);
  if (!record.prompt_ids.empty()) append_ids(out, "prompt_ids", record.prompt_ids);
  append_ids(out, "response_ids", record.response_ids);
  out += ",\"logprobs\":[";
  for (size_t i = 0; i < record.logprobs.size(); ++i) {
    if (i > 0) out += ',';
    append_json_number(out, record.logprobs[i]);
  }
  return out += "]}";
}

SamplesLog::SamplesLog(const std::filesystem::path& path, std::optional<int64_t> resume_step)
    : file_(shortened(path, resume_step)), waiting_(kMostWaiting) {}

void SamplesLog::append(const SampleRecord& record) {
  const std::string line = to_json(record);
  const std::lock_guard lock(mutex_);
  waiting_.write(line, [this](const std::string& record) { file_.append(record); });
}

}  // namespace tandem
