// Rows that are learnt as they stand: conversations for fine-tuning, pairs of replies for a reward model. Read,
// templated, tokenised and checked once, before training starts. Immutable afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/trajectory_store.h"
#include "text/chat_mask.h"

namespace tandem {

// Names follow the keys data.*.
struct TuningSetOptions {
  std::vector<std::filesystem::path> files;  // read in this order, as one table
  bool pairs = false;                        // prompt, chosen and rejected instead of conversations
  std::string messages_key = "messages", prompt_key = "prompt", response_key = "response";
  std::string chosen_key = "chosen", rejected_key = "rejected";
  size_t max_length = 1024;  // tokens, template included
  Truncation truncation = Truncation::kError;
  int64_t max_samples = -1;  // rows taken; -1: all
  bool shuffle = false;      // whether max_samples draws rows by `seed` (kept in file order) or takes the first ones
  uint64_t seed = 0;
  size_t num_threads = 0;  // for tokenising; 0: one a core, at most 8
};

// Marks the assistant's tokens in the messages from `first` on. Called from several threads at once.
using EncodeConversation = std::function<MaskedChat(const std::vector<Message>&, size_t first)>;

// A conversation is kept as prompt (all before the first token that is learnt) and response (the rest, its mask 0 where
// it is not the assistant's); a pair as two of them, chosen then rejected, which share their prompt and end with the
// last token of the reply.
class TuningSet {
 public:
  // IoError, ConfigError, or DataError naming file and row.
  TuningSet(const TuningSetOptions& options, const EncodeConversation& encode);

  size_t size() const { return samples_.size() / samples_per_row_; }  // rows
  size_t samples_per_row() const { return samples_per_row_; }         // 2 of pairs
  // The samples of these rows, in the given order.
  std::vector<TrajectoryPtr> take(const std::vector<size_t>& rows) const;
  const std::vector<TrajectoryPtr>& all() const { return samples_; }
  // Rows dropped by truncation: nothing to learn was left, or the end of a pair's reply, where it is scored, was not.
  size_t num_dropped() const { return num_dropped_; }
  size_t longest() const;        // tokens of the longest sample, prompt included
  uint64_t fingerprint() const;  // of every token, computed anew

 private:
  std::vector<TrajectoryPtr> samples_;
  size_t samples_per_row_;
  size_t num_dropped_ = 0;
};

// A conversation without its prompt's and other turns' tokens to learn has none: null.
TrajectoryPtr make_sample(MaskedChat chat, PromptPtr shared = nullptr);
// The two replies to one prompt, each cut after its last token.
std::pair<TrajectoryPtr, TrajectoryPtr> make_pair_of(MaskedChat chosen, MaskedChat rejected);
// Drops what the template wrote after the last marked token.
void end_with_reply(MaskedChat& chat);

}  // namespace tandem
