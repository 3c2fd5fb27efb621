#include "data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "data/parallel_rows.h"
#include "data/row.h"
#include "data/table.h"

namespace tandem {
namespace {

// A prompt and where it stands, for errors.
struct PlacedPrompt {
  std::shared_ptr<Prompt> prompt;
  size_t file = 0;  // index into DatasetOptions::files
  size_t row = 0;   // within that file
};

std::string place(const DatasetOptions& options, const PlacedPrompt& placed) {
  return fmt::format("{} row {}", options.files[placed.file].string(), placed.row);
}

void check_options(const DatasetOptions& options) {
  if (options.files.empty()) throw ConfigError("no data files given; set data.train_files or data.val_files");
  if (options.max_prompt_length == 0) throw ConfigError("data.max_prompt_length is 0; it must be at least 1");
  if (options.max_samples == 0 || options.max_samples < -1)
    throw ConfigError(fmt::format("max_samples is {}; it must be -1 (all rows) or at least 1", options.max_samples));
}

std::vector<PlacedPrompt> read_files(const DatasetOptions& options, size_t limit) {
  const RowSchema schema{options.prompt_key, options.reward_fn_key, options.scored};
  std::vector<PlacedPrompt> prompts;
  uint64_t id = 0;
  for (size_t file = 0; file < options.files.size() && prompts.size() < limit; ++file) {
    const auto& path = options.files[file];
    read_records(path, schema.columns(), [&](nlohmann::json&& record, size_t row) {
      try {
        prompts.push_back({std::make_shared<Prompt>(parse_row(record, schema)), file, row});
      } catch (const DataError& error) {
        throw DataError(fmt::format("{} row {}: {}; the file's columns are {}", path.string(), row, error.what(),
                                    fmt::join(column_names(path), ", ")));
      }
      prompts.back().prompt->id = id++;
      return prompts.size() < limit;
    });
  }
  return prompts;
}

std::vector<PlacedPrompt> read_chosen(const DatasetOptions& options) {
  const auto wanted = static_cast<size_t>(options.max_samples);  // -1 is no limit
  auto prompts = read_files(options, options.shuffle ? SIZE_MAX : wanted);
  if (prompts.size() > wanted) choose_rows(&prompts, wanted, options.seed);
  return prompts;
}

void encode_all(const DatasetOptions& options, const EncodePrompt& encode, std::vector<PlacedPrompt>* prompts) {
  parallel_rows(prompts->size(), options.num_threads, [&](size_t i) {
    Prompt& prompt = *(*prompts)[i].prompt;
    try {
      prompt.token_ids = encode(prompt.messages);
    } catch (const Error& error) {
      throw DataError(fmt::format("{}: {}", place(options, (*prompts)[i]), error.what()));
    }
    if (prompt.token_ids.empty())
      throw DataError(
          fmt::format("{}: the templated prompt has no tokens; remove the row", place(options, (*prompts)[i])));
  });
}

void truncate(const DatasetOptions& options, const PlacedPrompt& placed) {
  auto& ids = placed.prompt->token_ids;
  const size_t most = options.max_prompt_length;
  if (ids.size() <= most) return;
  const auto drop = [&ids](size_t from, size_t to) { ids.erase(ids.begin() + from, ids.begin() + to); };
  switch (options.truncation) {
    case Truncation::kError:
      throw DataError(
          fmt::format("{}: the templated prompt has {} tokens, {} > data.max_prompt_length={}; raise it, or set "
                      "data.filter_overlong_prompts=true or data.truncation=left|right|middle",
                      place(options, placed), ids.size(), ids.size(), most));
    case Truncation::kLeft:
      return drop(0, ids.size() - most);
    case Truncation::kRight:
      return drop(most, ids.size());
    case Truncation::kMiddle:
      return drop(most / 2, ids.size() - (most - most / 2));
  }
}

}  // namespace

Truncation parse_truncation(std::string_view name) {
  if (name == "error") return Truncation::kError;
  if (name == "left") return Truncation::kLeft;
  if (name == "right") return Truncation::kRight;
  if (name == "middle") return Truncation::kMiddle;
  throw ConfigError(fmt::format("data.truncation={} is unknown; use error, left, right or middle", name));
}

PromptDataset::PromptDataset(const DatasetOptions& options, const EncodePrompt& encode) {
  check_options(options);
  auto rows = read_chosen(options);
  num_rows_ = rows.size();
  const std::string files =
      fmt::format("{}{}", options.files.front().string(), options.files.size() > 1 ? " and its fellow files" : "");
  if (rows.empty()) throw DataError(fmt::format("dataset empty: {} holds no rows", files));
  encode_all(options, encode, &rows);
  for (const PlacedPrompt& placed : rows) {
    if (options.filter_overlong_prompts && placed.prompt->token_ids.size() > options.max_prompt_length) {
      ++num_dropped_;
      continue;
    }
    truncate(options, placed);
    placed.prompt->token_ids.shrink_to_fit();
    prompts_.push_back(placed.prompt);
  }
  if (options.filter_overlong_prompts)
    log_info(fmt::format("{}: {} of {} dropped by data.filter_overlong_prompts (over {} tokens)", files, num_dropped_,
                         num_rows_, options.max_prompt_length));
  if (prompts_.empty())
    throw DataError(fmt::format("dataset empty: all {} rows of {} are over data.max_prompt_length={}; raise it",
                                num_rows_, files, options.max_prompt_length));
}

}  // namespace tandem
