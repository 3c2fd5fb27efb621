// Prompts from files in verl's schema: read, templated, tokenised and checked once, before training starts.
// Immutable afterwards, so safe to read from many threads.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "data/types.h"

namespace tandem {

// What becomes of a templated prompt with more than max_prompt_length tokens.
enum class Truncation {
  kError,   // refuse the data set, naming file and row
  kLeft,    // keep the last max_prompt_length tokens
  kRight,   // keep the first
  kMiddle,  // keep the first max/2 (rounded down) and the last of the rest
};
Truncation parse_truncation(std::string_view name);  // ConfigError names the four

// Names follow verl's data.* keys.
struct DatasetOptions {
  std::vector<std::filesystem::path> files;  // read in this order, as one table
  std::string prompt_key = "prompt";
  std::string reward_fn_key = "data_source";
  size_t max_prompt_length = 1024;  // tokens, template included
  Truncation truncation = Truncation::kError;
  bool filter_overlong_prompts = false;
  int64_t max_samples = -1;  // rows taken before filtering; -1: all
  bool shuffle = false;      // whether max_samples draws rows by `seed` (kept in file order) or takes the first ones
  uint64_t seed = 0;
  size_t num_threads = 0;  // for tokenising; 0: one a core, at most 8
  // Rows must hold data_source and reward_model.ground_truth. Off for generation, or a reward that needs no truth;
  // what a row lacks is then empty.
  bool scored = true;
};

// Applies the chat template (generation prompt included) and tokenises. Called from several threads at once.
using EncodePrompt = std::function<std::vector<TokenId>(const std::vector<Message>&)>;

class PromptDataset {
 public:
  // Throws IoError, DataError (a row that cannot be used, an overlong prompt, nothing left), ConfigError (options).
  PromptDataset(const DatasetOptions& options, const EncodePrompt& encode);

  size_t size() const { return prompts_.size(); }
  // `index` counts kept prompts; Prompt::id is the row over the concatenated files, before any choice or filter.
  const PromptPtr& operator[](size_t index) const { return prompts_[index]; }

  size_t num_rows() const { return num_rows_; }        // taken from the files, before filtering
  size_t num_dropped() const { return num_dropped_; }  // by filter_overlong_prompts

 private:
  std::vector<PromptPtr> prompts_;
  size_t num_rows_ = 0;
  size_t num_dropped_ = 0;
};

}  // namespace tandem
