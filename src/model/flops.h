// Floating-point operations that a dense decoder's work needs, a multiplication and an addition being two: 2 a weight
// and token in the products (Kaplan et al., arXiv:2001.08361, §2.1) and 4 a head's value for each pair of a query and a
// key that it sees (Chowdhery et al., arXiv:2204.02311, appendix B, but over visible keys alone, about half as many); a
// backward pass takes twice that. Lookups, norms and whatever is computed again or padded count nothing.
#pragma once

#include "model/model_config.h"

namespace tandem {

struct SequenceWork {
  double tokens = 0;   // through the blocks
  double targets = 0;  // through the head
  double pairs = 0;    // of a query and a key that it sees

  SequenceWork& operator+=(const SequenceWork& other) {
    tokens += other.tokens, targets += other.targets, pairs += other.pairs;
    return *this;
  }
};

// A prompt and its response, whose last token nothing is computed for. `knows_prompt`: another sample computes it.
inline SequenceWork work_of_sample(double prompt_tokens, double response_tokens, bool knows_prompt) {
  const double tokens = prompt_tokens + response_tokens - 1, known = knows_prompt ? prompt_tokens : 0;
  return {tokens - known, response_tokens, (tokens * (tokens + 1) - known * (known + 1)) / 2};
}

namespace flops_parts {

inline double block_products(const ModelConfig& c, const SequenceWork& work) {
  const auto attention = c.hidden_size * (2 * c.q_size() + 2 * c.kv_size());
  const auto mlp = 3 * c.hidden_size * c.intermediate_size;
  return 2 * static_cast<double>(c.num_hidden_layers * (attention + mlp)) * work.tokens;
}

inline double head_products(const ModelConfig& c, const SequenceWork& work) {
  return 2 * static_cast<double>(c.hidden_size * (c.value_head ? 1 : c.vocab_size)) * work.targets;
}

inline double attention(const ModelConfig& c, const SequenceWork& work) {
  return 4 * static_cast<double>(c.num_hidden_layers * c.q_size()) * work.pairs;
}

}  // namespace flops_parts

inline double forward_flops(const ModelConfig& config, const SequenceWork& work) {
  return flops_parts::block_products(config, work) + flops_parts::head_products(config, work) +
         flops_parts::attention(config, work);
}

// Forward and backward. `frozen`: adapters alone are trained, so that weights get no gradient; the adapters' own few
// products are left out.
inline double training_flops(const ModelConfig& config, const SequenceWork& work, bool frozen) {
  const double products = flops_parts::block_products(config, work) + flops_parts::head_products(config, work);
  return (frozen ? 2 : 3) * products + 3 * flops_parts::attention(config, work);
}

}  // namespace tandem
