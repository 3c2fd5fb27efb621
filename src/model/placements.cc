#include "model/placements.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tandem {
namespace {

class List {
 public:
  explicit List(int64_t num_blocks) { list_.num_blocks = num_blocks; }

  void add(std::string name, int64_t block, std::vector<PlacedTensor> tensors, bool on_both_ends = false) {
    list_.parameters.push_back({std::move(name), block, on_both_ends, std::move(tensors)});
  }
  ParameterList finish() && { return std::move(list_); }

 private:
  ParameterList list_;
};

PlacedTensor vector(std::string name, int64_t size) { return {std::move(name), size, 1, Placement::replicate()}; }

void add_attention(List& list, const ModelConfig& c, int64_t block, const std::string& ours, const std::string& hf) {
  const Placement by_heads = Placement::shard(0, c.num_key_value_heads);
  const auto fused = [&](const char* kind, int64_t cols) {
    return std::vector<PlacedTensor>{{hf + "q_proj." + kind, c.q_size(), cols, by_heads},
                                     {hf + "k_proj." + kind, c.kv_size(), cols, by_heads},
                                     {hf + "v_proj." + kind, c.kv_size(), cols, by_heads}};
  };
  list.add(ours + "qkv", block, fused("weight", c.hidden_size));
  if (c.qkv_bias) list.add(ours + "qkv_bias", block, fused("bias", 1));
  if (c.qk_norm) {
    list.add(ours + "q_norm", block, {vector(hf + "q_norm.weight", c.head_dim)});
    list.add(ours + "k_norm", block, {vector(hf + "k_norm.weight", c.head_dim)});
  }
  list.add(ours + "o", block,
           {{hf + "o_proj.weight", c.hidden_size, c.q_size(), Placement::shard(1, c.num_key_value_heads)}});
  if (c.o_bias) list.add(ours + "o_bias", block, {vector(hf + "o_proj.bias", c.hidden_size)});
}

void add_mlp(List& list, const ModelConfig& c, int64_t block, const std::string& ours, const std::string& hf) {
  const auto fused = [&](const char* kind, int64_t cols) {
    const Placement by_width = Placement::shard(0, kTpPieces);
    return std::vector<PlacedTensor>{{hf + "gate_proj." + kind, c.intermediate_size, cols, by_width},
                                     {hf + "up_proj." + kind, c.intermediate_size, cols, by_width}};
  };
  list.add(ours + "gate_up", block, fused("weight", c.hidden_size));
  if (c.mlp_bias) list.add(ours + "gate_up_bias", block, fused("bias", 1));
  list.add(ours + "down", block,
           {{hf + "down_proj.weight", c.hidden_size, c.intermediate_size, Placement::shard(1, kTpPieces)}});
  if (c.mlp_bias) list.add(ours + "down_bias", block, {vector(hf + "down_proj.bias", c.hidden_size)});
}

}  // namespace

ParameterList placements(const ModelConfig& c) {
  List list(c.num_hidden_layers);
  const Placement by_vocabulary = Placement::shard(0, kTpPieces);
  const bool tied = c.tie_word_embeddings && !c.value_head;
  list.add("embed", -1, {{"model.embed_tokens.weight", c.vocab_size, c.hidden_size, by_vocabulary}}, tied);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string ours = fmt::format("layers.{}.", i), hf = fmt::format("model.layers.{}.", i);
    list.add(ours + "input_norm", i, {vector(hf + "input_layernorm.weight", c.hidden_size)});
    add_attention(list, c, i, ours, hf + "self_attn.");
    list.add(ours + "post_norm", i, {vector(hf + "post_attention_layernorm.weight", c.hidden_size)});
    add_mlp(list, c, i, ours, hf + "mlp.");
  }
  const int64_t end = c.num_hidden_layers;
  list.add("final_norm", end, {vector("model.norm.weight", c.hidden_size)});
  if (c.value_head) {
    list.add("value_head", end, {{"score.weight", 1, c.hidden_size, Placement::replicate()}});
    list.add("value_bias", end, {vector("score.bias", 1)});
  } else if (!tied) {
    list.add("lm_head", end, {{"lm_head.weight", c.vocab_size, c.hidden_size, by_vocabulary}});
  }
  return std::move(list).finish();
}

void check_layout(const ModelConfig& config, const Layout& layout) {
  const auto require = [&](bool fits, const std::string& what) {
    if (!fits) throw ConfigError(fmt::format("the layout {} does not fit the model: {}", layout_name(layout), what));
  };
  require(
      layout.pp * layout.chunks <= config.num_hidden_layers,
      fmt::format("{} pipeline stages of {} parts for {} blocks", layout.pp, layout.chunks, config.num_hidden_layers));
  require(layout.tp <= config.num_key_value_heads,
          fmt::format("{} tensor-parallel ranks for {} key heads", layout.tp, config.num_key_value_heads));
  require(layout.tp <= kTpPieces, fmt::format("at most {} tensor-parallel ranks", kTpPieces));
  require(layout.cp <= config.num_key_value_heads / layout.tp,
          fmt::format("sequences over {} ranks, where a tensor-parallel rank has {} key heads", layout.cp,
                      config.num_key_value_heads / layout.tp));
}

}  // namespace tandem
