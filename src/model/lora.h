// Adapters of a whole decoder (LoRA): making them, putting them beside the weights, merging them; and the folders of
// Hugging Face's PEFT they are kept in (adapter_config.json, adapter_model.safetensors).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder_weights.h"

namespace tandem {

struct LoraOptions {
  int64_t rank = 0;                          // 0, and no `adapter`: none, all weights are trained
  double alpha = 16;                         // an adapter's output is scaled by alpha / rank
  std::vector<std::string> target_modules;   // names of projections (q_proj ...), or all-linear
  std::vector<std::string> exclude_modules;  // and those that are left out
  std::filesystem::path adapter;             // a folder to start from; then the above are its own
  uint64_t seed = 0;                         // of the first values

  bool enabled() const { return rank > 0 || !adapter.empty(); }
};

// The projections that get adapters, in the order of the forward pass. ConfigError naming `key` for a name that is
// none, or where nothing is left; it lists the names that there are.
std::vector<std::string_view> lora_modules(const std::vector<std::string>& target,
                                           const std::vector<std::string>& exclude, const std::string& key);

// Weights that hold adapters and nothing else, in fp32 on the CPU. New ones as PEFT makes them: a drawn uniformly from
// ±1/√inputs (Kaiming's with √5), b 0, so that the model is at first the model without them.
DecoderWeights new_adapters(const ModelConfig& config, const LoraOptions& options);
// From a folder. ConfigError for a kind of adapter that is not supported, IoError for files that do not fit the model:
// nothing in them is passed over.
DecoderWeights load_adapters(const std::filesystem::path& folder, const ModelConfig& config);
// New ones, or those of options.adapter, whose rank must be options.rank where that is given.
DecoderWeights make_adapters(const ModelConfig& config, const LoraOptions& options);

// `adapters` lie in fp32 on the CPU. `base_model` names what they belong to.
void save_adapters(const std::filesystem::path& folder, const ModelConfig& config, const DecoderWeights& adapters,
                   const std::string& base_model);

const Adapter* first_adapter(const DecoderWeights& weights);  // null where there is none

// One line: rank, projections, and how many of all parameters are trained.
std::string describe_adapters(const DecoderWeights& weights);

// Puts them beside their projections; memory is shared.
void attach_adapters(DecoderWeights& weights, const DecoderWeights& adapters);

// Adds alpha / rank · b · a into each weight, in fp32 on the CPU; the adapters are then gone.
void merge_adapters(DecoderWeights& weights);

// The adapter's folder: the one given, or that within a checkpoint (global_step_N). Empty where there is none.
std::filesystem::path find_adapter(const std::filesystem::path& folder);
// What adapter_config.json names as its model; empty where it names none.
std::string adapter_base_model(const std::filesystem::path& adapter);

}  // namespace tandem
