// How one response is drawn and when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/types.h"

namespace tandem {

// The distribution is softmax(logits / temperature); top_k, then top_p, then min_p narrow it, and what is left is
// renormalised for the drawing. Reported log-probs are those of the whole distribution, as training computes them.
// temperature 0 takes the likeliest id (the lowest of equals) and reports its log-prob at temperature 1.
struct SamplingParams {
  double temperature = 1.0;
  int64_t top_k = -1;  // -1: all
  double top_p = 1.0;
  double min_p = 0.0;
  int64_t max_tokens = 512;
  int64_t min_tokens =
      0;  // no end before this many tokens: end and stop ids are not drawn, stop strings not looked for
  bool ignore_eos = false;
  std::vector<TokenId> eos_ids;
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop;  // the token that completes one ends the response and stays in it
  uint64_t seed = 0;
  int64_t top_logprobs = 0;  // of how many of the likeliest ids a drawn token also tells the log-probs

  // What log-probs are taken at.
  double effective_temperature() const { return temperature == 0 ? 1.0 : temperature; }
};

// ConfigError naming the field: what no response could satisfy, or no distribution can be made from.
void validate(const SamplingParams& params);

}  // namespace tandem
