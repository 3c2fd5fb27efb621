// An engine's checkpoint: what it needs to go on as if it had never stopped.
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Optimizer state under Hugging Face's parameter names, so that it does not depend on how parameters are fused here.
std::map<std::string, at::Tensor> moments_by_name(const ModelConfig& config, Optimizer& optimizer) {
  std::map<std::string, at::Tensor> all;
  for (auto& [name, tensor] : hf_parameters(config, optimizer.first_moment())) all.emplace("exp_avg." + name, tensor);
  for (auto& [name, tensor] : hf_parameters(config, optimizer.second_moment()))
    all.emplace("exp_avg_sq." + name, tensor);
  return all;
}

void save_moments(const fs::path& path, const ModelConfig& config, Optimizer& optimizer) {
  const auto moments = moments_by_name(config, optimizer);
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : moments) specs.push_back({name, DType::kF32, tensor.sizes().vec()});
  write_safetensors(path, std::move(specs),
                    [&](const TensorSpec& spec) { return std::as_bytes(values(moments.at(spec.name))); });
}

void load_moments(const fs::path& path, const ModelConfig& config, Optimizer& optimizer) {
  const SafetensorsFile file(path);
  for (const auto& [name, tensor] : moments_by_name(config, optimizer)) {
    const TensorView* view = file.find(name);
    if (view == nullptr || view->dtype != DType::kF32 || view->shape != tensor.sizes().vec())
      throw IoError(path.string() + ": tensor " + name +
                    " is absent or of another shape; the checkpoint is of another model");
    std::memcpy(values(tensor).data(), view->bytes.data(), view->bytes.size());
    file.release(*view);
  }
}

// Tokenizer, generation settings: what makes the folder a whole model for other programs.
void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "special_tokens_map.json", "vocab.json", "merges.txt", "added_tokens.json"})
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

}  // namespace

void Engine::save(const fs::path& folder) const {
  const fs::path actor = folder / "actor", model = actor / "huggingface";
  fs::create_directories(model);
  if (options_.save.weights) {
    save_weights(model, decoder_->config(), decoder_->weights(), DType::kF32);
    copy_companions(options_.model_path, model);
  }
  if (options_.save.optimizer && optimizer_) save_moments(actor / "optim.safetensors", decoder_->config(), *optimizer_);
  if (!options_.save.extra) return;
  const nlohmann::json extra{{"optimizer_steps", optimizer_ ? optimizer_->num_steps() : 0},
                             {"policy_version", policy_version_}};
  write_file_atomic(actor / "extra_state.json", extra.dump(2) + "\n");
}

void Engine::load(const fs::path& folder) {
  const fs::path actor = folder / "actor";
  if (options_.load.weights) load_weights(WeightFolder(actor / "huggingface"), decoder_->config(), decoder_->weights());
  if (!options_.load.extra) return;
  const fs::path extra_path = actor / "extra_state.json";
  const auto extra = nlohmann::json::parse(read_file(extra_path), nullptr, false);
  if (!extra.is_object() || !extra.contains("optimizer_steps") || !extra.contains("policy_version"))
    throw IoError(extra_path.string() + " is not an engine's state; resume from another checkpoint");
  policy_version_ = extra["policy_version"].get<uint64_t>();
  const int64_t steps = extra["optimizer_steps"].get<int64_t>();
  if (steps == 0 || !options_.load.optimizer) return;
  optimizer_ = std::make_unique<Optimizer>(decoder_->config(), options_.optimizer);
  load_moments(actor / "optim.safetensors", decoder_->config(), *optimizer_);
  optimizer_->set_num_steps(steps);
}

}  // namespace tandem
