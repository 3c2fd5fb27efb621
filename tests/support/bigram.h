// A model whose next-token logits are any table we like, as a Hugging Face folder: whatever a run samples, scores or
// trains with it can be worked out by hand. The embedding of token i is 32 e_i, no block adds to the residual stream
// (o_proj and down_proj are 0), so the final norm leaves 32 e_i (sqrt(1024) = 32) and lm_head[j, i] = L[j | i] / 32
// gives exactly L[j | i], whatever came before token i.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "checkpoint/safetensors.h"

namespace tandem {

// The tokenizer has the 256 bytes as ids 0..255 (no merges) and three specials; the model's vocabulary goes on to 1023
// with ids that no text encodes to.
inline constexpr int64_t kBigramVocab = 1024;
inline constexpr int32_t kBigramEndOfText = 256;  // <|endoftext|>
inline constexpr int32_t kBigramImStart = 257;    // <|im_start|>, the bos token
inline constexpr int32_t kBigramImEnd = 258;      // <|im_end|>, the eos and pad token

using NextLogits = std::map<int32_t, float>;  // next token -> logit

struct BigramTable {
  std::map<int32_t, NextLogits> rows;            // last token -> what may follow
  NextLogits otherwise = {{kBigramImEnd, 0.F}};  // after a token without a row
  float impossible = -10000.F;                   // the logit of every next token that is not named
};

struct BigramOptions {
  int64_t num_hidden_layers = 1;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 2;
  int64_t head_dim = 64;
  int64_t intermediate_size = 64;
  int64_t max_position_embeddings = 4096;
  DType dtype = DType::kF32;  // or kBF16, which a table's logits must then fit
};

// Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json (ChatML without a default system
// message) and generation_config.json; makes the folder when absent.
void write_bigram_model(const std::filesystem::path& folder, const BigramTable& table,
                        const BigramOptions& options = {});

}  // namespace tandem
