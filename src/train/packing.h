// Samples laid end to end without padding, the prompt of neighbouring samples computed once: a response's tokens see
// their prompt's keys and their own. Whole blocks of a prompt's keys are shared; the piece after the last whole block
// is written once more for each sample, so that sums over keys are cut where the paged cache cuts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/types.h"
#include "model/decoder.h"

namespace tandem {

// What is packed: a response and what came before it. Neighbours whose `prompt` is the same span share it.
struct PackItem {
  std::span<const TokenId> prompt;
  std::span<const TokenId> response;
};

// A response token whose log-prob is wanted.
struct PackTarget {
  int32_t row;  // index into PackedBatch::rows
  TokenId id;
  int32_t item;      // index of its sample in the packed items
  int32_t position;  // within the response
};

struct PackedBatch {
  TokenBatch tokens;
  std::vector<int32_t> rows;        // tokens whose next token is a target
  std::vector<PackTarget> targets;  // ascending rows; the samples of a prompt share its last row
};

// `row_per_target`: a row is named again for each of its targets, as a GPU's head wants it.
PackedBatch pack(std::span<const PackItem> items, bool row_per_target = false);

// Of a batch of which a rank has these tokens only, what it has to predict; rows count from its first token.
void keep_targets(PackedBatch& batch, int64_t first_token, int64_t end_token);

// Tokens that pack() computes for them. A response's last token is never an input.
int64_t packed_tokens(std::span<const PackItem> items);

// Cuts items into runs of at most `max_tokens` packed tokens (a single item may be longer) and, if positive,
// `max_items` items. Returns the end of each run. Runs of `unit` items are never cut (and count as one item). A run
// goes on to `max_shared` tokens, if that is more, while its next item shares the last one's prompt.
std::vector<size_t> split_micro_batches(std::span<const PackItem> items, int64_t max_tokens, int64_t max_items,
                                        size_t unit = 1, int64_t max_shared = 0);

// fn(index of the first item, its PackedBatch) for each such run.
template <class Fn>
void for_packed(std::span<const PackItem> items, int64_t max_tokens, bool row_per_target, Fn fn) {
  size_t begin = 0;
  for (const size_t end : split_micro_batches(items, max_tokens, 0)) {
    fn(begin, pack(items.subspan(begin, end - begin), row_per_target));
    begin = end;
  }
}

// A value a response token of every item, to be filled.
std::vector<std::vector<float>> values_of_tokens(std::span<const PackItem> items);

}  // namespace tandem
