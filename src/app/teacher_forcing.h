// Log-probs of given tokens by either path of the engine: the packed pass of training, or the paged cache of rollout,
// where each sequence's first half enters as a prompt and the rest token by token, as if it had been drawn.
#pragma once

#include <vector>

#include "data/types.h"
#include "model/decoder.h"

namespace tandem {

using TokenLists = std::vector<std::vector<TokenId>>;
using LogprobLists = std::vector<std::vector<float>>;  // one fewer a sequence than its tokens

LogprobLists training_logprobs(const Decoder& decoder, const TokenLists& sequences, double temperature);
LogprobLists rollout_logprobs(const Decoder& decoder, const TokenLists& sequences, double temperature);

}  // namespace tandem
