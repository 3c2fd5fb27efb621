#include "dashboard/samples_index.h"

#include <algorithm>
#include <charconv>

#include "base/fnv.h"
#include "dashboard/flat_json.h"

namespace tandem {
namespace {

constexpr size_t kMaxWords = 1000;  // a field of free text is no list of words

// "abc" -> abc, escapes left as they are.
std::string_view unquoted(std::string_view text) {
  return text.size() >= 2 && text.front() == '"' ? text.substr(1, text.size() - 2) : std::string_view();
}

template <class Number>
Number number(std::string_view text) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

uint16_t place_of(std::vector<std::string>& words, std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  const auto place = static_cast<size_t>(found - words.begin());
  if (found == words.end()) {
    if (words.size() >= kMaxWords) return 0;
    words.emplace_back(word);
  }
  return static_cast<uint16_t>(place);
}

bool sooner(const SampleRow& a, const SampleRow& b, SampleOrder order) {
  if (order == SampleOrder::kBest && a.reward != b.reward) return a.reward > b.reward;
  if (order == SampleOrder::kWorst && a.reward != b.reward) return a.reward < b.reward;
  if (order == SampleOrder::kOldest) return a.step < b.step;
  return a.step > b.step;
}

}  // namespace

std::optional<SampleHead> parse_sample_head(std::string_view line) {
  constexpr size_t kWanted = 7;
  SampleHead head;
  size_t found = 0, at = 1;
  bool has_step = false;
  if (line.empty() || line.front() != '{') return std::nullopt;
  // What stands behind the wanted members is passed over unread: most of a line is ids and log-probs.
  while (found < kWanted && at < line.size() && line[at] == '"') {
    const size_t key_end = skip_json_value(line, at);
    if (key_end == line.npos || key_end >= line.size() || line[key_end] != ':') return std::nullopt;
    const size_t end = skip_json_value(line, key_end + 1);
    if (end == line.npos) return std::nullopt;
    const std::string_view key = unquoted(line.substr(at, key_end - at));
    const std::string_view value = line.substr(key_end + 1, end - key_end - 1);
    ++found;
    if (key == "step") {
      head.row.step = number<int32_t>(value), has_step = true;
    } else if (key == "prompt") {
      head.row.prompt = fnv1a(kFnvStart, value);
    } else if (key == "score") {
      head.row.score = number<float>(value);
    } else if (key == "reward") {
      head.row.reward = number<float>(value);
    } else if (key == "advantage") {
      head.row.advantage = number<float>(value);
    } else if (key == "stop_reason") {
      head.stop_reason = unquoted(value);
    } else if (key == "data_source") {
      head.data_source = unquoted(value);
    } else {
      --found;
    }
    at = end + 1;
  }
  if (!has_step) return std::nullopt;
  head.row.length = static_cast<uint32_t>(line.size());
  return head;
}

void SamplesIndex::add(std::string_view line, uint64_t offset) {
  auto head = parse_sample_head(line);
  if (!head) return;
  head->row.offset = offset;
  head->row.stop_reason = place_of(stop_reasons_, head->stop_reason);
  head->row.data_source = place_of(data_sources_, head->data_source);
  rows_.push_back(head->row);
}

bool SamplesIndex::read(size_t max_bytes) {
  return !tail_.read(max_bytes, {[this] { rows_.clear(); }, [this](auto line, auto offset) { add(line, offset); }});
}

std::vector<size_t> SamplesIndex::find(const SampleFilter& filter) const {
  const auto matches = [](const std::vector<std::string>& words, uint16_t place, const std::string& wanted) {
    return wanted.empty() || words[place] == wanted;
  };
  std::vector<size_t> found;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const SampleRow& row = rows_[i];
    if (row.step < filter.first_step || row.step > filter.last_step) continue;
    if (row.reward < filter.least_reward || row.reward > filter.most_reward) continue;
    if (filter.prompt && row.prompt != *filter.prompt) continue;
    if (!matches(stop_reasons_, row.stop_reason, filter.stop_reason)) continue;
    if (!matches(data_sources_, row.data_source, filter.data_source)) continue;
    found.push_back(i);
  }
  std::stable_sort(found.begin(), found.end(),
                   [&](size_t a, size_t b) { return sooner(rows_[a], rows_[b], filter.order); });
  return found;
}

}  // namespace tandem
