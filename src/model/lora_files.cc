// Adapters in the layout of Hugging Face's PEFT.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/strict_json.h"
#include "model/lora.h"
#include "model/lora_layout.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr int64_t kMaxRank = 1 << 20;

fs::path config_path(const fs::path& folder) { return folder / "adapter_config.json"; }
fs::path tensors_path(const fs::path& folder) { return folder / "adapter_model.safetensors"; }

json read_config(const fs::path& folder) {
  const fs::path path = config_path(folder);
  json config = parse_strict_json(read_file(path), kMaxDepth, path);
  if (!config.is_object()) throw ConfigError(path.string() + " is not a JSON object");
  return config;
}

bool empty_value(const json& value) { return value.is_null() || value == false || value.empty(); }

// What would change the result and is not done here.
void check_kind(const json& config, const fs::path& path) {
  const auto refuse = [&](const std::string& key) {
    throw ConfigError(fmt::format("{}: {}={} is not supported; merge the adapter with PEFT first", path.string(), key,
                                  config[key].dump()));
  };
  if (config.value("peft_type", json("LORA")) != "LORA") refuse("peft_type");
  if (config.value("bias", json("none")) != "none") refuse("bias");
  for (const char* key :
       {"use_dora", "use_rslora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "rank_pattern",
        "alpha_pattern", "modules_to_save", "layers_to_transform", "layers_pattern", "layer_replication",
        "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "arrow_config", "kasa_config",
        "monteclora_config", "megatron_config"})
    if (config.contains(key) && !empty_value(config[key])) refuse(key);
  // Other first values (pissa, olora ...) go with another model than the folder's: what they were taken out of.
  const json first = config.value("init_lora_weights", json(true));
  if (first.is_string() && first != "gaussian" && first != "orthogonal" && first != "eva") refuse("init_lora_weights");
}

struct Shape {
  int64_t rank;
  double alpha;
};

Shape shape_of(const json& config, const fs::path& path) {
  const auto number = [&](const char* key) {
    if (!config.contains(key) || !config[key].is_number())
      throw ConfigError(fmt::format("{}: '{}' is missing or not a number", path.string(), key));
    return config[key].get<double>();
  };
  const double rank = number("r"), alpha = number("lora_alpha");
  if (!(rank >= 1 && rank <= static_cast<double>(kMaxRank) && rank == std::floor(rank)))
    throw ConfigError(path.string() + ": 'r' must be a whole number, 1 or more");
  return {static_cast<int64_t>(rank), alpha};
}

// The projections that some tensor of the file belongs to: target_modules may be a pattern, the tensors are plain.
std::vector<std::string_view> modules_in(const SafetensorsFile& file, const ModelConfig& config) {
  std::vector<std::string_view> modules;
  for (const AdapterPlace& place : adapter_places(config))
    if (std::ranges::any_of(file.tensors(), [&](const TensorView& tensor) {
          return tensor.name.find(fmt::format(".{}.lora_", place.module)) != std::string::npos;
        }))
      modules.push_back(place.module);
  return modules;
}

}  // namespace

DecoderWeights load_adapters(const fs::path& folder, const ModelConfig& config) {
  const json settings = read_config(folder);
  check_kind(settings, config_path(folder));
  const auto [rank, alpha] = shape_of(settings, config_path(folder));
  const SafetensorsFile file(tensors_path(folder));
  const auto refuse = [&](const std::string& what) {
    throw IoError(fmt::format("{}: {}; the adapter is of another model, or of a kind that is not supported",
                              tensors_path(folder).string(), what));
  };
  DecoderWeights adapters = zero_adapters(config, modules_in(file, config), rank, alpha);
  std::set<std::string> used;
  for (const auto& [name, tensor] : hf_parameters(config, adapters)) {
    const TensorView* view = file.find(name);
    if (view == nullptr) refuse("there is no tensor " + in_quotes(name));
    if (view->shape != tensor.sizes().vec())
      refuse(fmt::format("tensor {} has shape {}, not {}", in_quotes(name), shape_text(view->shape),
                         shape_text(tensor.sizes().vec())));
    read_values(*view, tensor);
    used.insert(name);
  }
  for (const TensorView& tensor : file.tensors())
    if (!used.contains(tensor.name)) refuse("tensor " + in_quotes(tensor.name) + " has no place in the model");
  if (used.empty()) refuse("it holds no tensors");
  return adapters;
}

void save_adapters(const fs::path& folder, const ModelConfig& config, const DecoderWeights& adapters,
                   const std::string& base_model) {
  fs::create_directories(folder);
  std::map<std::string, at::Tensor> by_name;
  std::vector<TensorSpec> specs;
  for (auto& [name, tensor] : hf_parameters(config, adapters)) {
    specs.push_back({name, DType::kF32, tensor.sizes().vec()});
    by_name.emplace(std::move(name), tensor);
  }
  write_safetensors(tensors_path(folder), std::move(specs),
                    [&](const TensorSpec& spec) { return std::as_bytes(values(by_name.at(spec.name))); });
  json modules = json::array();
  for (Linear LayerWeights::*member : kLinears)
    for (const Adapter& adapter : (adapters.layers.at(0).*member).adapters) modules.push_back(adapter.module);
  const Adapter* any = first_adapter(adapters);
  check(any != nullptr, "there are no adapters to save");
  const bool whole = any->alpha == std::floor(any->alpha);
  const json settings{{"base_model_name_or_path", base_model},
                      {"bias", "none"},
                      {"fan_in_fan_out", false},
                      {"inference_mode", true},
                      {"init_lora_weights", true},
                      {"lora_alpha", whole ? json(static_cast<int64_t>(any->alpha)) : json(any->alpha)},
                      {"lora_dropout", 0.0},
                      {"modules_to_save", nullptr},
                      {"peft_type", "LORA"},
                      {"r", any->a_RE.size(0)},
                      {"target_modules", modules},
                      {"task_type", "CAUSAL_LM"}};
  write_file_atomic(config_path(folder), settings.dump(2) + "\n");
}

fs::path find_adapter(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "lora_adapter", folder / "actor" / "lora_adapter"})
    if (fs::exists(config_path(place))) return place;
  return {};
}

std::string adapter_base_model(const fs::path& adapter) {
  const json settings = read_config(adapter);
  const auto found = settings.find("base_model_name_or_path");
  return found != settings.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace tandem
