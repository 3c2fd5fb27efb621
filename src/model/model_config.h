// What a Hugging Face `config.json` says about a dense decoder of the Llama, Qwen2 and Qwen3 families. Absent keys take
// the defaults of transformers' own config classes. Whatever would change the result and is not supported is a
// ConfigError naming the file and the key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace tandem {

enum class Architecture { kLlama, kQwen2, kQwen3 };

enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

// Lengths are in tokens. See rope.h for what each number does.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn, from here on
  bool truncate = true;                                  // whole-numbered ends of the ramp
  std::optional<double> attention_factor, mscale, mscale_all_dim;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  bool qkv_bias = false;  // q_proj, k_proj, v_proj
  bool o_bias = false;    // o_proj
  bool mlp_bias = false;  // gate_proj, up_proj, down_proj
  bool qk_norm = false;   // RMS norm of each head of q and k, before rope

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;  // not hidden_size / num_attention_heads in general
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;  // the head is the embedding
  bool value_head = false;           // a critic: one number a token (score.weight, score.bias) in the head's place
  RopeConfig rope;

  std::string json;  // the text it came from

  int64_t q_size() const { return num_attention_heads * head_dim; }
  int64_t kv_size() const { return num_key_value_heads * head_dim; }
};

// `source` names the text in errors.
ModelConfig parse_model_config(std::string_view json, std::string_view source);
ModelConfig load_model_config(const std::filesystem::path& folder);  // reads folder/config.json

// Writes folder/config.json as it was read, but for the type of the weights that are saved beside it.
void save_model_config(const ModelConfig& config, const std::filesystem::path& folder, DType dtype);

struct ExpectedTensor {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
};

// Every parameter of the model once, in the order of the forward pass; no lm_head.weight when it is tied
// or a value head stands in its place.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// IoError naming tensor and file for a parameter that is missing, has another shape, or is not a float type, and for a
// tensor that the model would not use (a bias that would be dropped). Rotary buffers and the second copy of a tied head
// are tolerated, and so is what the caller reads himself (`also`: a value head).
void check_tensors(const ModelConfig& config, const WeightFolder& weights, const std::vector<std::string>& also = {});

int64_t num_parameters(const ModelConfig& config);  // a tied head counts once

}  // namespace tandem
