#include "engine/model_state.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/shared_memory.h"
#include "checkpoint/shard_writes.h"
#include "engine/model_parts.h"
#include "model/lora.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

at::TensorOptions on_cpu() { return at::device(at::kCPU).dtype(at::kFloat); }

// Optimizer state under Hugging Face's parameter names, so that it does not depend on how parameters are fused here.
std::map<std::string, at::Tensor> moments_by_name(const ModelConfig& config, const DecoderWeights& exp_avg,
                                                  const DecoderWeights& exp_avg_sq) {
  std::map<std::string, at::Tensor> all;
  for (auto& [name, tensor] : hf_parameters(config, exp_avg)) all.emplace(kFirstMoment + name, tensor);
  for (auto& [name, tensor] : hf_parameters(config, exp_avg_sq)) all.emplace(kSecondMoment + name, tensor);
  return all;
}

void save_moments(const fs::path& path, const ModelConfig& config, const ModelStateCopy& copy, WritePace* pace) {
  const auto moments = moments_by_name(config, copy.exp_avg, copy.exp_avg_sq);
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : moments) specs.push_back({name, DType::kF32, tensor.sizes().vec()});
  write_safetensors(
      path, std::move(specs), [&](const TensorSpec& spec) { return std::as_bytes(values(moments.at(spec.name))); },
      {{"format", "pt"}}, pace);
}

bool has_moments(const ModelStateCopy& copy) { return !copy.exp_avg.layers.empty(); }

// Tokenizer, generation settings: what makes the folder a whole model for other programs.
void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "special_tokens_map.json", "vocab.json", "merges.txt", "added_tokens.json"})
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

// A rank's own of both moments.
void write_moment_shard(const fs::path& folder, const ModelParts& parts, int rank, const ModelStateCopy& copy,
                        WritePace* pace) {
  std::vector<TensorSlice> slices;
  std::vector<at::Tensor> boxes;
  for (const auto& [prefix, moments] :
       {std::pair(kFirstMoment, &copy.exp_avg), std::pair(kSecondMoment, &copy.exp_avg_sq)}) {
    const std::vector<NamedTensor> whole = parameters(*moments);
    for (const Held& held : parts.owned_by(rank)) {
      slices.push_back(parts.slice_of(held, prefix));
      boxes.push_back(parts.box_of(whole[held.parameter].tensor, held));
    }
  }
  const int world = parts.layout().world();
  const fs::path path =
      folder / ("optim_world_size_" + std::to_string(world) + "_rank_" + std::to_string(rank) + ".safetensors");
  at::Tensor row_by_row;
  write_slices(
      path, slices,
      [&](size_t i) {
        row_by_row = boxes[i].contiguous();
        return std::as_bytes(values(row_by_row));
      },
      pace);
}

void save_sharded(const fs::path& folder, const fs::path& source_model, const ModelConfig& config,
                  const ModelStateCopy& copy, const CheckpointContents& contents, WritePace* pace,
                  const ModelParts& parts) {
  const int world = parts.layout().world();
  const fs::path whole = folder / "huggingface";
  std::vector<std::function<void()>> writes;
  std::map<std::string, at::Tensor> weights;
  if (contents.weights) {
    std::vector<TensorSpec> specs;
    for (auto& [name, tensor] : hf_parameters(config, copy.weights)) {
      weights.emplace(name, tensor);
      specs.push_back({name, DType::kF32, tensor.sizes().vec()});
    }
    fs::create_directories(whole);
    writes = weight_shard_writes(
        whole, std::move(specs), [&](const TensorSpec& spec) { return std::as_bytes(values(weights.at(spec.name))); },
        static_cast<size_t>(world), pace);
  }
  if (contents.optimizer && has_moments(copy))
    for (int rank = 0; rank < world; ++rank)
      writes.emplace_back([&, rank] { write_moment_shard(folder, parts, rank, copy, pace); });
  run_side_by_side(writes);
  if (!contents.weights) return;
  save_model_config(config, whole, DType::kF32);
  copy_companions(source_model, whole);
}

// What is trained, in fp32.
DecoderWeights exact_weights(const Decoder& decoder) {
  const DecoderWeights& weights = decoder.weights();
  return weights.masters ? *weights.masters : trained(weights);
}

void copy_weights(const DecoderWeights& from, DecoderWeights& to) {
  if (to.layers.empty()) to = converted(zeros_of_trained(from), on_cpu());
  const auto source = parameters(from), target = parameters(to);
  for (size_t i = 0; i < target.size(); ++i) {
    at::Tensor tensor = target[i].tensor;
    tensor.copy_(source[i].tensor);
  }
}

void load_moments(const fs::path& folder, const ModelConfig& config, Optimizer& optimizer) {
  const ShardedFolder files = moment_files(folder);
  for (const auto& [name, tensor] : moments_by_name(config, optimizer.first_moment(), optimizer.second_moment())) {
    const std::vector<int64_t> shape = tensor.sizes().vec(), start(shape.size(), 0);
    if (!files.contains(name) || files.dtype(name) != DType::kF32 || files.shape(name) != shape)
      throw IoError(folder.string() + ": tensor " + name +
                    " is absent from its optimizer state or of another shape; the checkpoint is of another model");
    const at::Tensor host = tensor.is_cpu() ? tensor : at::empty(tensor.sizes(), on_cpu());
    files.read(name, start, shape, std::as_writable_bytes(values(host)));
    if (!tensor.is_cpu()) tensor.copy_(host);
  }
}

// The decoder's weights from a folder, in place, and the masters they are rounded from.
void restore_weights(const fs::path& folder, Decoder& decoder) {
  const WeightFolder files(folder);
  if (!decoder.on_device()) return load_weights(files, decoder.config(), decoder.weights());
  DecoderWeights host = empty_weights(decoder.config());
  load_weights(files, decoder.config(), host);
  set_weights(decoder, host);
}

void restore_adapters(const fs::path& folder, Decoder& decoder) {
  if (!fs::exists(folder))
    throw IoError(folder.string() +
                  " is not there: the checkpoint is not of adapters; leave lora_rank out, or resume "
                  "from another checkpoint");
  const DecoderWeights saved = load_adapters(folder, decoder.config());
  DecoderWeights& weights = decoder.weights();
  const auto from = hf_parameters(decoder.config(), saved);
  const auto master = hf_parameters(decoder.config(), trained(masters(weights)));
  const auto to = hf_parameters(decoder.config(), trained(weights));
  bool same = from.size() == to.size() && first_adapter(saved)->alpha == first_adapter(weights)->alpha;
  for (size_t i = 0; same && i < to.size(); ++i)
    same = from[i].name == to[i].name && from[i].tensor.sizes() == to[i].tensor.sizes();
  if (!same)
    throw IoError(folder.string() +
                  " holds adapters of another rank, alpha or other modules than this run's; resume "
                  "with lora_rank, lora_alpha and target_modules as they were");
  for (size_t i = 0; i < to.size(); ++i) {
    master[i].tensor.copy_(from[i].tensor);
    if (!to[i].tensor.is_same(master[i].tensor)) to[i].tensor.copy_(master[i].tensor);
  }
}

void save_whole(const fs::path& folder, const fs::path& source_model, const ModelConfig& config,
                const DecoderWeights& weights, WritePace* pace) {
  fs::create_directories(folder);
  save_weights(folder, config, weights, DType::kF32, pace);
  copy_companions(source_model, folder);
}

DecoderWeights merged(const ModelConfig& config, const DecoderWeights& adapters, const fs::path& source_model) {
  DecoderWeights whole = empty_weights(config);
  load_weights(WeightFolder(source_model), config, whole);  // as exactly as they were read
  attach_adapters(whole, adapters);
  merge_adapters(whole);
  return whole;
}

}  // namespace

void set_weights(Decoder& decoder, const DecoderWeights& exact) {
  DecoderWeights& weights = decoder.weights();
  if (decoder.on_device())
    weights.masters =
        std::make_shared<DecoderWeights>(converted(exact, at::device(decoder.device()).dtype(at::kFloat)));
  const auto from = parameters(decoder.on_device() ? *weights.masters : exact), to = parameters(weights);
  for (size_t i = 0; i < to.size(); ++i) {
    at::Tensor weight = to[i].tensor;
    weight.copy_(from[i].tensor);
  }
}

uint64_t state_copy_bytes(const Decoder& decoder) {
  return 3 * sizeof(float) * static_cast<uint64_t>(count_parameters(decoder.weights()).trained);
}

void copy_model_state(const Decoder& decoder, Optimizer* optimizer, uint64_t version, ModelStateCopy& into) {
  copy_weights(exact_weights(decoder), into.weights);
  if (optimizer != nullptr) {
    copy_weights(optimizer->first_moment(), into.exp_avg);
    copy_weights(optimizer->second_moment(), into.exp_avg_sq);
  } else {
    into.exp_avg = into.exp_avg_sq = {};
  }
  into.optimizer_steps = optimizer != nullptr ? optimizer->num_steps() : 0;
  into.version = version;
}

void restore_model_state(const ModelStateCopy& copy, Decoder& decoder, const OptimizerOptions& options,
                         std::unique_ptr<Optimizer>& optimizer) {
  DecoderWeights exact = trained(masters(decoder.weights())), computing = trained(decoder.weights());  // share memory
  copy_weights(copy.weights, exact);
  if (decoder.weights().masters) copy_weights(copy.weights, computing);
  optimizer.reset();
  if (!has_moments(copy)) return;
  optimizer = std::make_unique<Optimizer>(decoder.weights(), options);
  copy_weights(copy.exp_avg, optimizer->first_moment());
  copy_weights(copy.exp_avg_sq, optimizer->second_moment());
  optimizer->set_num_steps(copy.optimizer_steps);
}

void save_model_copy(const fs::path& folder, const fs::path& source_model, const ModelConfig& config,
                     const ModelStateCopy& copy, const CheckpointContents& contents, WritePace* pace,
                     const ModelParts* parts) {
  fs::create_directories(folder);
  const bool adapters = has_adapters(copy.weights);
  if (parts != nullptr) save_sharded(folder, source_model, config, copy, contents, pace, *parts);
  if (contents.weights && adapters)
    save_adapters(folder / "lora_adapter", config, copy.weights, fs::absolute(source_model).string());
  if (contents.weights && !adapters && parts == nullptr)
    save_whole(folder / "huggingface", source_model, config, copy.weights, pace);
  if (contents.merged && adapters)
    save_whole(folder / "huggingface", source_model, config, merged(config, copy.weights, source_model), pace);
  if (contents.optimizer && has_moments(copy) && parts == nullptr)
    save_moments(folder / "optim.safetensors", config, copy, pace);
  if (!contents.extra && !contents.optimizer) return;  // the moments' step count is in there
  const nlohmann::json extra{{"optimizer_steps", copy.optimizer_steps}, {"policy_version", copy.version}};
  write_file_atomic(folder / "extra_state.json", extra.dump(2) + "\n");
}

void save_model_state(const fs::path& folder, const fs::path& source_model, const Decoder& decoder,
                      Optimizer* optimizer, uint64_t version, const CheckpointContents& contents) {
  ModelStateCopy state;  // on the CPU the model's own memory
  state.version = version;
  if (contents.weights || contents.merged) state.weights = converted(exact_weights(decoder), on_cpu());
  if (optimizer != nullptr) {
    state.optimizer_steps = optimizer->num_steps();
    if (contents.optimizer) {
      state.exp_avg = converted(optimizer->first_moment(), on_cpu());
      state.exp_avg_sq = converted(optimizer->second_moment(), on_cpu());
    }
  }
  save_model_copy(folder, source_model, decoder.config(), state, contents, nullptr);
}

std::optional<uint64_t> load_model_state(const fs::path& folder, Decoder& decoder, const OptimizerOptions& options,
                                         std::unique_ptr<Optimizer>& optimizer, const CheckpointContents& contents) {
  if (contents.weights && has_adapters(decoder.weights())) {
    restore_adapters(folder / "lora_adapter", decoder);
  } else if (contents.weights) {
    refuse_adapters(folder);
    restore_weights(folder / "huggingface", decoder);
  }
  if (!contents.extra && !contents.optimizer) return std::nullopt;
  const SavedProgress progress = read_progress(folder);
  if (progress.optimizer_steps > 0 && contents.optimizer) {
    optimizer = std::make_unique<Optimizer>(decoder.weights(), options);
    load_moments(folder, decoder.config(), *optimizer);
    optimizer->set_num_steps(progress.optimizer_steps);
  }
  return contents.extra ? std::optional(progress.version) : std::nullopt;
}

void refuse_adapters(const fs::path& folder) {
  if (fs::exists(folder / "lora_adapter"))
    throw IoError(folder.string() +
                  " holds adapters (lora_adapter), but this run trains all weights; set lora_rank, "
                  "lora_alpha and target_modules as they were");
}

SavedProgress read_progress(const fs::path& folder) {
  const fs::path path = folder / "extra_state.json";
  const auto extra = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!extra.is_object() || !extra.contains("optimizer_steps") || !extra.contains("policy_version"))
    throw IoError(path.string() + " is not an engine's state; resume from another checkpoint");
  return {extra["optimizer_steps"].get<int64_t>(), extra["policy_version"].get<uint64_t>()};
}

ShardedFolder moment_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optim") && name.ends_with(".safetensors")) files.push_back(entry.path());
  }
  if (files.empty())
    throw IoError(folder.string() +
                  " holds no optim.safetensors, nor those of its ranks; resume from another checkpoint");
  std::sort(files.begin(), files.end());
  return {folder, files};
}

}  // namespace tandem
