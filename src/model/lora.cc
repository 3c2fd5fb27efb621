#include "model/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "model/lora_layout.h"

namespace tandem {
namespace {

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::array<std::string_view, 7> kModules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                      "gate_proj", "up_proj", "down_proj"};

// "self_attn.q_proj" names q_proj too, as in PEFT, where the end of a module's path counts.
std::string_view module_named(const std::string& name, const std::string& key) {
  for (const std::string_view module : kModules)
    if (name == module || name.ends_with(fmt::format(".{}", module))) return module;
  throw ConfigError(fmt::format("{}: there is no projection '{}'; those that can have adapters are {}", key, name,
                                fmt::join(kModules, ", ")));
}

Adapter zero_adapter(const AdapterPlace& place, int64_t rank, double alpha) {
  return {place.module, place.first, alpha, kernels::zeros({rank, place.inputs}),
          kernels::zeros({place.outputs, rank})};
}

}  // namespace

std::vector<std::string_view> lora_modules(const std::vector<std::string>& target,
                                           const std::vector<std::string>& exclude, const std::string& key) {
  std::vector<std::string_view> wanted;
  for (const std::string& name : target) {
    if (name == kAllLinear) {
      wanted.insert(wanted.end(), kModules.begin(), kModules.end());
    } else {
      wanted.push_back(module_named(name, key + "target_modules"));
    }
  }
  for (const std::string& name : exclude) std::erase(wanted, module_named(name, key + "exclude_modules"));
  std::vector<std::string_view> modules;
  for (const std::string_view module : kModules)
    if (std::ranges::find(wanted, module) != wanted.end()) modules.push_back(module);
  if (modules.empty())
    throw ConfigError(key + "target_modules: no projection is left to train; name some, or all-linear");
  return modules;
}

std::vector<AdapterPlace> adapter_places(const ModelConfig& c) {
  const int64_t width = c.hidden_size, q = c.q_size(), kv = c.kv_size(), inner = c.intermediate_size;
  return {{kModules[0], &LayerWeights::qkv, 0, q, width},
          {kModules[1], &LayerWeights::qkv, q, kv, width},
          {kModules[2], &LayerWeights::qkv, q + kv, kv, width},
          {kModules[3], &LayerWeights::o, 0, width, q},
          {kModules[4], &LayerWeights::gate_up, 0, inner, width},
          {kModules[5], &LayerWeights::gate_up, inner, inner, width},
          {kModules[6], &LayerWeights::down, 0, width, inner}};
}

DecoderWeights zero_adapters(const ModelConfig& config, const std::vector<std::string_view>& modules, int64_t rank,
                             double alpha) {
  DecoderWeights adapters;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    LayerWeights& layer = adapters.layers.emplace_back();
    for (const AdapterPlace& place : adapter_places(config))
      if (std::ranges::find(modules, place.module) != modules.end())
        (layer.*place.linear).adapters.push_back(zero_adapter(place, rank, alpha));
  }
  return adapters;
}

DecoderWeights new_adapters(const ModelConfig& config, const LoraOptions& options) {
  const auto modules = lora_modules(options.target_modules, options.exclude_modules, "");
  DecoderWeights adapters = zero_adapters(config, modules, options.rank, options.alpha);
  uint64_t stream = 0;
  for (const auto& [name, tensor] : parameters(adapters)) {
    if (!name.ends_with("lora_A")) continue;
    Philox random(options.seed, ++stream);
    const double bound = 1 / std::sqrt(static_cast<double>(tensor.size(1)));
    for (float& value : values(tensor)) value = static_cast<float>(bound * (2 * random.uniform() - 1));
  }
  return adapters;
}

DecoderWeights make_adapters(const ModelConfig& config, const LoraOptions& options) {
  if (options.adapter.empty()) return new_adapters(config, options);
  DecoderWeights adapters = load_adapters(options.adapter, config);
  const int64_t rank = first_adapter(adapters)->a_RE.size(0);
  if (options.rank > 0 && options.rank != rank)
    throw ConfigError(fmt::format("lora_rank={}, but the adapter in {} has rank {}; leave lora_rank out", options.rank,
                                  options.adapter.string(), rank));
  return adapters;
}

const Adapter* first_adapter(const DecoderWeights& weights) {
  for (const LayerWeights& layer : weights.layers)
    for (Linear LayerWeights::*member : kLinears)
      if (!(layer.*member).adapters.empty()) return &(layer.*member).adapters.front();
  return nullptr;
}

std::string describe_adapters(const DecoderWeights& weights) {
  std::vector<std::string_view> modules;
  for (Linear LayerWeights::*member : kLinears)
    for (const Adapter& adapter : (weights.layers.at(0).*member).adapters) modules.push_back(adapter.module);
  const Adapter* any = first_adapter(weights);
  check(any != nullptr, "there are no adapters to describe");
  const ParameterCounts counts = count_parameters(weights);
  return fmt::format("adapters of rank {}, alpha {}, on {}: {} parameters are trained, {} stay as they are",
                     any->a_RE.size(0), any->alpha, fmt::join(modules, ", "), counts.trained, counts.frozen);
}

void attach_adapters(DecoderWeights& weights, const DecoderWeights& adapters) {
  check(weights.layers.size() == adapters.layers.size(), "adapters of another model");
  for (size_t i = 0; i < weights.layers.size(); ++i)
    for (Linear LayerWeights::*member : kLinears)
      (weights.layers[i].*member).adapters = (adapters.layers[i].*member).adapters;
}

void merge_adapters(DecoderWeights& weights) {
  for (LayerWeights& layer : weights.layers)
    for (Linear LayerWeights::*member : kLinears) {
      Linear& linear = layer.*member;
      for (const Adapter& adapter : linear.adapters) {
        at::Tensor product_ME = kernels::empty({adapter.b_MR.size(0), adapter.a_RE.size(1)});
        kernels::linear_backward_input(adapter.b_MR, adapter.a_RE, product_ME);  // b · a
        at::Tensor rows_ME = linear.weight_NE.narrow(0, adapter.first, product_ME.size(0));
        kernels::add_to_columns(rows_ME, 0, adapter.scale(), product_ME);
      }
      linear.adapters.clear();
    }
}

}  // namespace tandem
