#include "data/tuning_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/fnv.h"
#include "base/log.h"
#include "data/parallel_rows.h"
#include "data/row.h"
#include "data/table.h"

namespace tandem {
namespace {

using nlohmann::json;

struct RawRow {
  std::vector<std::vector<Message>> conversations;  // one, or chosen and rejected
  size_t file = 0, row = 0;
};

std::vector<Message> prompt_of(const json& record, const std::string& column) {
  const json* value = find_value(record, column);
  if (value && value->is_string()) return {{"user", value->get<std::string>()}};
  return parse_messages(record, column);
}

std::string reply_of(const json& record, const std::string& column, const char* key) {
  const json* value = find_value(record, column);
  if (!value) throw DataError(fmt::format("column '{}' is absent or null; name the column by {}", column, key));
  if (!value->is_string())
    throw DataError(fmt::format("column '{}' is {}; it must be the text of the reply", column, value->type_name()));
  if (value->get_ref<const std::string&>().empty()) throw DataError(fmt::format("column '{}' is empty", column));
  return value->get<std::string>();
}

std::vector<Message> answered(std::vector<Message> prompt, std::string reply) {
  prompt.push_back({"assistant", std::move(reply)});
  return prompt;
}

std::vector<std::vector<Message>> parse(const json& record, const TuningSetOptions& o) {
  if (const json* tools = find_value(record, "tools"); tools && !tools->empty())
    throw DataError("column 'tools' is set; tools are not supported, remove the column");
  if (o.pairs) {
    const std::vector<Message> prompt = prompt_of(record, o.prompt_key);
    return {answered(prompt, reply_of(record, o.chosen_key, "data.chosen_key")),
            answered(prompt, reply_of(record, o.rejected_key, "data.rejected_key"))};
  }
  if (find_value(record, o.messages_key)) return {parse_messages(record, o.messages_key)};
  if (!find_value(record, o.prompt_key))
    throw DataError(
        fmt::format("columns '{}' and '{}' are both absent or null; name the column of conversations by "
                    "data.messages_key, or those of prompt and reply by data.prompt_key and "
                    "data.response_key",
                    o.messages_key, o.prompt_key));
  return {answered(prompt_of(record, o.prompt_key), reply_of(record, o.response_key, "data.response_key"))};
}

std::vector<RawRow> read_rows(const TuningSetOptions& o) {
  if (o.files.empty()) throw ConfigError("no data files given; set data.train_files or data.val_files");
  const auto wanted = static_cast<size_t>(o.max_samples);  // -1 is no limit
  const size_t limit = o.shuffle ? SIZE_MAX : wanted;
  const Columns columns = o.pairs ? Columns{o.prompt_key, o.chosen_key, o.rejected_key, "tools"}
                                  : Columns{o.messages_key, o.prompt_key, o.response_key, "tools"};
  std::vector<RawRow> rows;
  for (size_t file = 0; file < o.files.size() && rows.size() < limit; ++file)
    read_records(o.files[file], columns, [&](json&& record, size_t row) {
      try {
        rows.push_back({parse(record, o), file, row});
      } catch (const DataError& error) {
        throw DataError(fmt::format("{} row {}: {}; the file's columns are {}", o.files[file].string(), row,
                                    error.what(), fmt::join(column_names(o.files[file]), ", ")));
      }
      return rows.size() < limit;
    });
  if (rows.size() > wanted) choose_rows(&rows, wanted, o.seed);
  return rows;
}

void truncate(MaskedChat& chat, const TuningSetOptions& o) {
  const size_t length = chat.ids.size();
  if (length <= o.max_length) return;
  if (o.truncation == Truncation::kError)
    throw DataError(
        fmt::format("the conversation has {} tokens, {} > data.max_length={}; raise it, or set "
                    "data.truncation=left|right",
                    length, length, o.max_length));
  const auto cut = [&](auto& tokens) {
    const auto keep = static_cast<std::ptrdiff_t>(o.max_length);
    if (o.truncation == Truncation::kLeft)
      tokens.erase(tokens.begin(), tokens.end() - keep);
    else
      tokens.resize(o.max_length);
  };
  cut(chat.ids), cut(chat.mask);
}

// What truncation left of a row.
struct MadeRow {
  std::vector<TrajectoryPtr> samples;  // none: dropped
  bool lost_end = false;               // dropped since the end of a reply is gone
};

MadeRow make_row(const RawRow& raw, const TuningSetOptions& o, const EncodeConversation& encode) {
  std::vector<MaskedChat> chats;
  for (const auto& conversation : raw.conversations) {
    MaskedChat& chat = chats.emplace_back(encode(conversation, o.pairs ? conversation.size() - 1 : 0));
    if (std::ranges::count(chat.mask, 1) == 0) throw DataError("it has no message of the assistant to learn");
    if (o.pairs) end_with_reply(chat);
    if (o.pairs && o.truncation == Truncation::kRight && chat.ids.size() > o.max_length) return {{}, true};
    truncate(chat, o);
    if (std::ranges::count(chat.mask, 1) == 0 || chat.ids.size() < 2) return {};
  }
  if (!o.pairs) {
    auto sample = make_sample(std::move(chats[0]));
    return sample ? MadeRow{{sample}} : MadeRow{};
  }
  auto [chosen, rejected] = make_pair_of(std::move(chats[0]), std::move(chats[1]));
  return chosen && rejected ? MadeRow{{chosen, rejected}} : MadeRow{};
}

}  // namespace

TrajectoryPtr make_sample(MaskedChat chat, PromptPtr shared) {
  if (chat.ids.empty()) return nullptr;
  chat.mask[0] = 0;  // nothing predicts the first token
  const auto first = std::ranges::find(chat.mask, 1) - chat.mask.begin();
  if (first == std::ssize(chat.mask)) return nullptr;
  if (!shared ||
      !std::equal(chat.ids.begin(), chat.ids.begin() + first, shared->token_ids.begin(), shared->token_ids.end())) {
    auto prompt = std::make_shared<Prompt>();
    prompt->token_ids.assign(chat.ids.begin(), chat.ids.begin() + first);
    shared = prompt;
  }
  // Nothing after the last token that is learnt has an effect.
  const auto last = chat.mask.rend() - std::find(chat.mask.rbegin(), chat.mask.rend(), 1);
  auto sample = std::make_shared<Trajectory>();
  sample->prompt = std::move(shared);
  sample->response_ids.assign(chat.ids.begin() + first, chat.ids.begin() + last);
  sample->response_mask.assign(chat.mask.begin() + first, chat.mask.begin() + last);
  return sample;
}

std::pair<TrajectoryPtr, TrajectoryPtr> make_pair_of(MaskedChat chosen, MaskedChat rejected) {
  const TrajectoryPtr first = make_sample(std::move(chosen));
  return {first, make_sample(std::move(rejected), first ? first->prompt : nullptr)};
}

void end_with_reply(MaskedChat& chat) {
  const auto end = chat.mask.rend() - std::find(chat.mask.rbegin(), chat.mask.rend(), 1);
  chat.ids.resize(static_cast<size_t>(end));
  chat.mask.resize(static_cast<size_t>(end));
}

TuningSet::TuningSet(const TuningSetOptions& options, const EncodeConversation& encode)
    : samples_per_row_(options.pairs ? 2 : 1) {
  const std::vector<RawRow> raw = read_rows(options);
  std::vector<MadeRow> rows(raw.size());
  parallel_rows(raw.size(), options.num_threads, [&](size_t i) {
    try {
      rows[i] = make_row(raw[i], options, encode);
    } catch (const Error& error) {
      throw DataError(fmt::format("{} row {}: {}", options.files[raw[i].file].string(), raw[i].row, error.what()));
    }
  });
  size_t lost_end = 0, nothing_left = 0;
  for (const MadeRow& row : rows) {
    if (row.samples.empty()) ++(row.lost_end ? lost_end : nothing_left);
    samples_.insert(samples_.end(), row.samples.begin(), row.samples.end());
  }
  num_dropped_ = lost_end + nothing_left;
  const std::string files =
      fmt::format("{}{}", options.files.front().string(), options.files.size() > 1 ? " and its fellow files" : "");
  if (nothing_left > 0)
    log_warn(fmt::format("{}: {} of {} rows dropped: data.max_length={} leaves none of their tokens to learn", files,
                         nothing_left, raw.size(), options.max_length));
  if (lost_end > 0)
    log_warn(
        fmt::format("{}: {} of {} rows dropped: data.truncation=right at data.max_length={} takes the end of a "
                    "reply, where it is scored; use left, or raise it",
                    files, lost_end, raw.size(), options.max_length));
  if (samples_.empty()) throw DataError(fmt::format("dataset empty: {} holds no row to learn from", files));
}

std::vector<TrajectoryPtr> TuningSet::take(const std::vector<size_t>& rows) const {
  std::vector<TrajectoryPtr> out;
  for (const size_t row : rows)
    for (size_t i = 0; i < samples_per_row_; ++i) out.push_back(samples_[row * samples_per_row_ + i]);
  return out;
}

size_t TuningSet::longest() const {
  size_t most = 0;
  for (const TrajectoryPtr& sample : samples_)
    most = std::max(most, sample->prompt->token_ids.size() + sample->response_ids.size());
  return most;
}

uint64_t TuningSet::fingerprint() const {
  uint64_t hash = kFnvStart;
  const auto mix = [&](uint64_t word) { hash = fnv1a(hash, word); };
  for (const TrajectoryPtr& sample : samples_) {
    mix(sample->prompt->token_ids.size());
    for (const TokenId id : sample->prompt->token_ids) mix(static_cast<uint64_t>(id));
    for (const TokenId id : sample->response_ids) mix(static_cast<uint64_t>(id));
  }
  return hash;
}

}  // namespace tandem
