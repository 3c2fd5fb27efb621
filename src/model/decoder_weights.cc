#include "model/decoder_weights.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros.h>

#include <mutex>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"

namespace tandem {
namespace {

template <class Make>
DecoderWeights build(const ModelConfig& c, Make make) {
  const int64_t width = c.hidden_size, qkv = c.q_size() + 2 * c.kv_size(), gate_up = 2 * c.intermediate_size;
  DecoderWeights w;
  w.embed_VE = make({c.vocab_size, width});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    LayerWeights& layer = w.layers.emplace_back();
    layer.input_norm_E = make({width});
    layer.qkv.weight_NE = make({qkv, width});
    if (c.qkv_bias) layer.qkv.bias_N = make({qkv});
    if (c.qk_norm) layer.q_norm_D = make({c.head_dim}), layer.k_norm_D = make({c.head_dim});
    layer.o.weight_NE = make({width, c.q_size()});
    if (c.o_bias) layer.o.bias_N = make({width});
    layer.post_norm_E = make({width});
    layer.gate_up.weight_NE = make({gate_up, width});
    if (c.mlp_bias) layer.gate_up.bias_N = make({gate_up});
    layer.down.weight_NE = make({width, c.intermediate_size});
    if (c.mlp_bias) layer.down.bias_N = make({width});
  }
  w.final_norm_E = make({width});
  if (c.value_head) {
    w.value_head_1E = make({1, width}), w.value_bias_1 = make({1});
  } else {
    w.lm_head_VE = c.tie_word_embeddings ? w.embed_VE : make({c.vocab_size, width});
  }
  return w;
}

int64_t num_values(const DecoderWeights& weights) {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters(weights)) count += parameter.tensor.numel();
  return count;
}

class HfNames {
 public:
  HfNames(const ModelConfig& config, std::vector<NamedTensor>& out) : config_(config), out_(out) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) out_.push_back({name, tensor});
  }
  void add_rows(const std::string& name, const at::Tensor& fused, int64_t first, int64_t count) {
    if (fused.defined()) out_.push_back({name, fused.narrow(0, first, count)});
  }
  void add_qkv(const std::string& prefix, const std::string& kind, const at::Tensor& fused) {
    const int64_t q = config_.q_size(), kv = config_.kv_size();
    add_rows(prefix + "q_proj." + kind, fused, 0, q);
    add_rows(prefix + "k_proj." + kind, fused, q, kv);
    add_rows(prefix + "v_proj." + kind, fused, q + kv, kv);
  }
  void add_gate_up(const std::string& prefix, const std::string& kind, const at::Tensor& fused) {
    add_rows(prefix + "gate_proj." + kind, fused, 0, config_.intermediate_size);
    add_rows(prefix + "up_proj." + kind, fused, config_.intermediate_size, config_.intermediate_size);
  }

 private:
  const ModelConfig& config_;
  std::vector<NamedTensor>& out_;
};

}  // namespace

DecoderWeights empty_weights(const ModelConfig& config, const at::TensorOptions& options) {
  return build(config, [&](at::IntArrayRef shape) { return at::empty(shape, options); });
}

DecoderWeights zero_weights(const ModelConfig& config, at::Device device) {
  return build(config, [&](at::IntArrayRef shape) { return at::zeros(shape, at::device(device).dtype(at::kFloat)); });
}

DecoderWeights mapped(const DecoderWeights& weights, const std::function<at::Tensor(const at::Tensor&)>& fn) {
  DecoderWeights out = weights;
  out.masters = nullptr;
  const auto map = [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = fn(tensor);
  };
  const auto map_linear = [&](Linear& linear) {
    map(linear.weight_NE), map(linear.bias_N);
    for (Adapter& adapter : linear.adapters) map(adapter.a_RE), map(adapter.b_MR);
  };
  map(out.embed_VE);
  for (LayerWeights& l : out.layers) {
    map(l.input_norm_E), map_linear(l.qkv), map(l.q_norm_D), map(l.k_norm_D), map_linear(l.o);
    map(l.post_norm_E), map_linear(l.gate_up), map_linear(l.down);
  }
  map(out.final_norm_E);
  if (weights.lm_head_VE.is_same(weights.embed_VE)) {
    out.lm_head_VE = out.embed_VE;
  } else {
    map(out.lm_head_VE);
  }
  map(out.value_head_1E);
  map(out.value_bias_1);
  return out;
}

DecoderWeights converted(const DecoderWeights& weights, const at::TensorOptions& options) {
  return mapped(weights, [&](const at::Tensor& tensor) { return tensor.to(options); });
}

DecoderWeights without_adapters(const DecoderWeights& weights) {
  DecoderWeights base = weights;
  base.masters = nullptr;
  for (LayerWeights& layer : base.layers)
    for (Linear LayerWeights::*member : kLinears) (layer.*member).adapters.clear();
  return base;
}

bool has_adapters(const DecoderWeights& weights) {
  for (const LayerWeights& layer : weights.layers)
    for (Linear LayerWeights::*member : kLinears)
      if (!(layer.*member).adapters.empty()) return true;
  return false;
}

DecoderWeights trained(const DecoderWeights& weights) {
  if (!has_adapters(weights)) return weights;
  DecoderWeights adapters;
  adapters.layers.resize(weights.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i)
    for (Linear LayerWeights::*member : kLinears)
      (adapters.layers[i].*member).adapters = (weights.layers[i].*member).adapters;
  return adapters;
}

DecoderWeights zeros_of_trained(const DecoderWeights& weights) {
  return mapped(trained(weights),
                [](const at::Tensor& tensor) { return at::zeros(tensor.sizes(), tensor.options().dtype(at::kFloat)); });
}

ParameterCounts count_parameters(const DecoderWeights& weights) {
  const int64_t count = num_values(trained(weights));
  return {count, num_values(weights) - count};
}

DecoderWeights random_weights(const ModelConfig& config, at::Device device) {
  at::Generator random = at::globalContext().defaultGenerator(device);  // a GPU's starts anywhere
  {
    const std::lock_guard lock(random.mutex());
    random.set_current_seed(1);
  }
  DecoderWeights weights =
      build(config, [&](at::IntArrayRef shape) { return at::empty(shape, at::device(device).dtype(at::kBFloat16)); });
  for (auto& [name, tensor] : parameters(weights)) {
    if (name.ends_with("norm")) {
      tensor.fill_(1.0);
    } else {
      tensor.normal_(0.0, 0.02);
    }
  }
  return weights;
}

DecoderWeights& masters(DecoderWeights& weights) {
  const at::Tensor& like = weights.embed_VE.defined() ? weights.embed_VE : weights.layers.at(0).input_norm_E;
  if (like.scalar_type() == at::kFloat) return weights;
  if (!weights.masters)
    weights.masters = std::make_shared<DecoderWeights>(converted(trained(weights), like.options().dtype(at::kFloat)));
  return *weights.masters;
}

std::vector<NamedTensor> parameters(const DecoderWeights& w) {
  std::vector<NamedTensor> all;
  const auto add = [&](std::string name, const at::Tensor& tensor) {
    if (tensor.defined()) all.push_back({std::move(name), tensor});
  };
  const auto add_linear = [&](const std::string& layer, const char* name, const Linear& linear) {
    add(layer + name, linear.weight_NE);
    add(layer + name + "_bias", linear.bias_N);
    for (const Adapter& adapter : linear.adapters) {
      add(layer + std::string(adapter.module) + ".lora_A", adapter.a_RE);
      add(layer + std::string(adapter.module) + ".lora_B", adapter.b_MR);
    }
  };
  add("embed", w.embed_VE);
  for (size_t i = 0; i < w.layers.size(); ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    const LayerWeights& l = w.layers[i];
    add(at + "input_norm", l.input_norm_E);
    add_linear(at, "qkv", l.qkv);
    add(at + "q_norm", l.q_norm_D);
    add(at + "k_norm", l.k_norm_D);
    add_linear(at, "o", l.o);
    add(at + "post_norm", l.post_norm_E);
    add_linear(at, "gate_up", l.gate_up);
    add_linear(at, "down", l.down);
  }
  add("final_norm", w.final_norm_E);
  if (!w.lm_head_VE.is_same(w.embed_VE)) add("lm_head", w.lm_head_VE);
  add("value_head", w.value_head_1E);
  add("value_bias", w.value_bias_1);
  return all;
}

std::vector<NamedTensor> hf_parameters(const ModelConfig& config, const DecoderWeights& w) {
  std::vector<NamedTensor> all;
  HfNames names(config, all);
  names.add("model.embed_tokens.weight", w.embed_VE);
  for (size_t i = 0; i < w.layers.size(); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".", attention = layer + "self_attn.",
                      mlp = layer + "mlp.";
    const LayerWeights& l = w.layers[i];
    names.add(layer + "input_layernorm.weight", l.input_norm_E);
    names.add_qkv(attention, "weight", l.qkv.weight_NE);
    names.add_qkv(attention, "bias", l.qkv.bias_N);
    names.add(attention + "q_norm.weight", l.q_norm_D);
    names.add(attention + "k_norm.weight", l.k_norm_D);
    names.add(attention + "o_proj.weight", l.o.weight_NE);
    names.add(attention + "o_proj.bias", l.o.bias_N);
    names.add(layer + "post_attention_layernorm.weight", l.post_norm_E);
    names.add_gate_up(mlp, "weight", l.gate_up.weight_NE);
    names.add_gate_up(mlp, "bias", l.gate_up.bias_N);
    names.add(mlp + "down_proj.weight", l.down.weight_NE);
    names.add(mlp + "down_proj.bias", l.down.bias_N);
  }
  names.add("model.norm.weight", w.final_norm_E);
  if (!config.tie_word_embeddings) names.add("lm_head.weight", w.lm_head_VE);
  names.add("score.weight", w.value_head_1E);
  names.add("score.bias", w.value_bias_1);
  for (size_t i = 0; i < w.layers.size(); ++i)
    for (Linear LayerWeights::*member : kLinears)
      for (const Adapter& adapter : (w.layers[i].*member).adapters) {
        const bool attention = member == &LayerWeights::qkv || member == &LayerWeights::o;
        const std::string module = "base_model.model.model.layers." + std::to_string(i) +
                                   (attention ? ".self_attn." : ".mlp.") + std::string(adapter.module);
        names.add(module + ".lora_A.weight", adapter.a_RE);
        names.add(module + ".lora_B.weight", adapter.b_MR);
      }
  return all;
}

std::span<float> values(const at::Tensor& parameter) {
  return {kernels::f32(parameter), static_cast<size_t>(parameter.numel())};
}

void init_random(DecoderWeights& weights, uint64_t seed) {
  uint64_t stream = 0;
  for (auto& [name, tensor] : parameters(weights)) {
    Philox random(seed, ++stream);
    auto* values = static_cast<float*>(tensor.data_ptr());
    const bool norm = name.ends_with("norm");
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = norm ? 1.0f : static_cast<float>(0.02 * random.normal());
  }
}

}  // namespace tandem
