// What planning needs to know of a dense decoder: its sizes. Torch-free; the app fills it from the model's config.json.
#pragma once

#include <cstdint>

namespace tandem {

struct ModelShape {
  int64_t layers = 0, hidden = 0, intermediate = 0, vocab = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool tied_head = false;
  int64_t parameters = 0;  // of all; a tied head counts once

  int64_t q_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  // Of a block's products; norms and biases are too few to matter.
  int64_t block_parameters() const {
    return hidden * (q_size() + 2 * kv_size()) + q_size() * hidden + 3 * hidden * intermediate;
  }
  int64_t outside_parameters() const { return parameters - layers * block_parameters(); }  // embedding and head
  int64_t head_parameters() const { return vocab * hidden; }
  // Values kept for a token's backward pass: inputs of the block and its middle, q, k and v, the cache's copy of keys
  // and values, attention's output and its sums, gate and up.
  int64_t activations_per_token() const {
    return layers * (2 * hidden + 2 * q_size() + 4 * kv_size() + heads + 2 * intermediate);
  }
  int64_t kv_values_per_token() const { return 2 * layers * kv_size(); }
};

}  // namespace tandem
