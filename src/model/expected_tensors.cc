#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "checkpoint/strict_json.h"
#include "model/model_config.h"

namespace tandem {
namespace {

struct Linear {
  std::string_view name;
  int64_t out, in;
  bool bias;
};

void append_linear(std::vector<ExpectedTensor>& tensors, const std::string& prefix, const Linear& linear) {
  const std::string name = prefix + std::string(linear.name);
  tensors.push_back({name + ".weight", {linear.out, linear.in}});
  if (linear.bias) tensors.push_back({name + ".bias", {linear.out}});
}

void append_layer(std::vector<ExpectedTensor>& tensors, const ModelConfig& config, const std::string& prefix) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t q = config.q_size(), kv = config.kv_size();
  tensors.push_back({prefix + "input_layernorm.weight", {hidden}});
  append_linear(tensors, prefix, {"self_attn.q_proj", q, hidden, config.qkv_bias});
  append_linear(tensors, prefix, {"self_attn.k_proj", kv, hidden, config.qkv_bias});
  append_linear(tensors, prefix, {"self_attn.v_proj", kv, hidden, config.qkv_bias});
  if (config.qk_norm) {
    tensors.push_back({prefix + "self_attn.q_norm.weight", {config.head_dim}});
    tensors.push_back({prefix + "self_attn.k_norm.weight", {config.head_dim}});
  }
  append_linear(tensors, prefix, {"self_attn.o_proj", hidden, q, config.o_bias});
  tensors.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
  append_linear(tensors, prefix, {"mlp.gate_proj", inner, hidden, config.mlp_bias});
  append_linear(tensors, prefix, {"mlp.up_proj", inner, hidden, config.mlp_bias});
  append_linear(tensors, prefix, {"mlp.down_proj", hidden, inner, config.mlp_bias});
}

bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// Old exports carry buffers that are computed, and a tied head a second time.
bool is_tolerated(std::string_view name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

void check_tensor(const ExpectedTensor& expected, const WeightFolder& weights) {
  const TensorView actual = weights.get(expected.name);
  const std::string where = weights.file_of(expected.name).string() + ": tensor " + in_quotes(expected.name);
  if (actual.shape != expected.shape) {
    throw IoError(where + " has shape " + shape_text(actual.shape) + ", config.json asks for " +
                  shape_text(expected.shape));
  }
  if (!is_float(actual.dtype))
    throw IoError(where + " is of type " + std::string(dtype_name(actual.dtype)) + "; F32, BF16 or F16 is needed");
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    append_layer(tensors, config, "model.layers." + std::to_string(layer) + ".");
  tensors.push_back({"model.norm.weight", {config.hidden_size}});
  if (config.value_head) {
    tensors.push_back({"score.weight", {1, config.hidden_size}});
    tensors.push_back({"score.bias", {1}});
  } else if (!config.tie_word_embeddings) {
    tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  return tensors;
}

void check_tensors(const ModelConfig& config, const WeightFolder& weights, const std::vector<std::string>& also) {
  std::unordered_set<std::string> used(also.begin(), also.end());
  for (const auto& expected : expected_tensors(config)) {
    check_tensor(expected, weights);
    used.insert(expected.name);
  }
  for (const auto& name : weights.names()) {
    if (!used.contains(name) && !is_tolerated(name, config)) {
      throw IoError(weights.file_of(name).string() + ": tensor " + in_quotes(name) +
                    " has no place in the model that config.json describes; config and weights do not belong together");
    }
  }
}

int64_t num_parameters(const ModelConfig& config) {
  int64_t total = 0;
  for (const auto& tensor : expected_tensors(config)) {
    int64_t count = 1;
    for (const int64_t dim : tensor.shape) count *= dim;
    total += count;
  }
  return total;
}

}  // namespace tandem
