#include <nlohmann/json.hpp>

#include "dashboard/answers.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kReadAtOnce = size_t{256} << 20;  // of samples.jsonl, a question
constexpr size_t kHeadBytes = 400;                 // of a text in the list

std::string text_of(const json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string head_of(const std::string& text) {
  if (text.size() <= kHeadBytes) return text;
  size_t end = kHeadBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "…";
}

json summary(const SamplesIndex& samples, size_t index) {
  const SampleRow& row = samples.row(index);
  const json record = json::parse(samples.line(index), nullptr, /*allow_exceptions=*/false);
  json out{{"index", index},
           {"step", row.step},
           {"score", row.score},
           {"reward", row.reward},
           {"advantage", row.advantage},
           {"stop_reason", samples.stop_reasons().at(row.stop_reason)},
           {"data_source", samples.data_sources().at(row.data_source)},
           // As text: a 64-bit number does not fit into the page's.
           {"prompt_key", std::to_string(row.prompt)}};
  if (!record.is_object()) return out;  // cut since it was read
  out["prompt"] = head_of(text_of(record, "prompt"));
  out["response"] = head_of(text_of(record, "response"));
  const auto ids = record.find("response_ids");
  out["tokens"] = ids != record.end() && ids->is_array() ? ids->size() : 0;
  return out;
}

std::string model_of(const RecordedRun& run) {
  std::string model;
  for (const auto& [key, value] : run.config())
    if (key == "actor_rollout_ref.model.path" || key == "model.path") model = value;
  return model;
}

std::string as_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

std::string samples_answer(RecordedRun& run, const SampleFilter& filter, size_t first, size_t count) {
  return run.with_samples([&](SamplesIndex& samples) {
    const bool complete = samples.read(kReadAtOnce);
    const std::vector<size_t> found = samples.find(filter);
    json items = json::array();
    for (size_t i = first; i < found.size() && items.size() < count; ++i) items.push_back(summary(samples, found[i]));
    return as_text({{"total", samples.size()},
                    {"found", found.size()},
                    {"complete", complete},
                    {"stop_reasons", samples.stop_reasons()},
                    {"data_sources", samples.data_sources()},
                    {"items", std::move(items)}});
  });
}

std::optional<std::string> sample_answer(RecordedRun& run, size_t index, const TokenTexts& token_texts) {
  const auto line = run.with_samples([&](SamplesIndex& samples) -> std::optional<std::pair<std::string, uint64_t>> {
    samples.read(kReadAtOnce);
    if (index >= samples.size()) return std::nullopt;
    return std::make_pair(samples.line(index), samples.row(index).prompt);
  });
  if (!line) return std::nullopt;
  json record = json::parse(line->first, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::nullopt;
  record["index"] = index;
  record["prompt_key"] = std::to_string(line->second);
  const auto ids = record.find("response_ids");
  if (token_texts && ids != record.end() && ids->is_array() &&
      std::all_of(ids->begin(), ids->end(), [](const json& id) { return id.is_number_integer(); })) {
    if (const auto texts = token_texts(model_of(run), ids->get<std::vector<int32_t>>())) record["token_texts"] = *texts;
  }
  record.erase("prompt_ids");
  return as_text(record);
}

}  // namespace tandem
