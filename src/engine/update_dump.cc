#include "engine/update_dump.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "engine/model_state.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Every vector of a sample with its name; `visit` sees the very members, to be written or filled.
template <class T, class S, class Visit>
void each_vector(T& trajectory, S& sample, std::vector<TokenId>& prompt_ids, const Visit& visit) {
  visit("prompt_ids", DType::kI32, prompt_ids);
  visit("response_ids", DType::kI32, trajectory.response_ids);
  visit("rollout_logprobs", DType::kF32, trajectory.rollout_logprobs);
  visit("response_mask", DType::kU8, trajectory.response_mask);
  visit("ref_logprobs", DType::kF32, sample.ref_logprobs);
  visit("advantages", DType::kF64, sample.advantages);
  visit("old_logprobs", DType::kF32, sample.old_logprobs);
  visit("importance_weights", DType::kF32, sample.importance_weights);
  visit("mask", DType::kU8, sample.mask);
  visit("old_values", DType::kF32, sample.old_values);
  visit("returns", DType::kF64, sample.returns);
}

void write_samples(const fs::path& path, std::span<const TrainingSample> samples) {
  std::vector<TensorView> views;
  std::vector<std::vector<TokenId>> prompts(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const Trajectory& trajectory = *samples[i].trajectory;
    prompts[i] = trajectory.prompt->token_ids;
    each_vector(trajectory, samples[i], prompts[i], [&](const char* name, DType dtype, const auto& values) {
      if (values.empty()) return;
      views.push_back({fmt::format("{}.{}", i, name),
                       dtype,
                       {static_cast<int64_t>(values.size())},
                       std::as_bytes(std::span(values))});
    });
  }
  write_safetensors(path, views);
}

json scalars_of(const TrainingSample& sample) {
  const Trajectory& t = *sample.trajectory;
  return {{"prompt", t.prompt->id},
          {"sample", t.sample_index},
          {"policy_version", t.policy_version},
          {"temperature", t.temperature},
          {"stop_reason", static_cast<int>(t.stop_reason)},
          {"advantage", fmt::format("{:.17g}", sample.advantage)}};
}

TrainingSample read_sample(const SafetensorsFile& file, size_t i, const json& scalars, const PromptPtr& before) {
  auto prompt = std::make_shared<Prompt>();
  auto trajectory = std::make_shared<Trajectory>();
  TrainingSample sample;
  each_vector(*trajectory, sample, prompt->token_ids, [&](const char* name, DType dtype, auto& values) {
    const TensorView* view = file.find(fmt::format("{}.{}", i, name));
    if (view == nullptr) return;
    if (view->dtype != dtype) throw IoError(file.path().string() + ": " + view->name + " has another type");
    values.resize(view->bytes.size() / sizeof(*values.data()));
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  });
  prompt->id = scalars.at("prompt");
  const bool same = before != nullptr && before->id == prompt->id && before->token_ids == prompt->token_ids;
  trajectory->prompt = same ? before : PromptPtr(std::move(prompt));  // by its address packing knows what is shared
  trajectory->sample_index = scalars.at("sample");
  trajectory->policy_version = scalars.at("policy_version");
  trajectory->temperature = scalars.at("temperature");
  trajectory->stop_reason = static_cast<StopReason>(scalars.at("stop_reason").get<int>());
  sample.advantage = std::stod(scalars.at("advantage").get<std::string>());
  sample.trajectory = std::move(trajectory);
  return sample;
}

}  // namespace

void write_dump(const fs::path& folder, const std::string& role, int64_t step, const NonFiniteUpdate& update,
                const Decoder& decoder, const fs::path& source_model) {
  fs::path made = folder;
  made += ".saving";
  fs::remove_all(made);
  fs::create_directories(made);
  CheckpointContents weights_only{true, false, false, true};
  weights_only.weights = !has_adapters(decoder.weights());  // those are merged, so that the folder stands for itself
  save_model_state(made, source_model, decoder, nullptr, 0, weights_only);
  write_samples(made / "samples.safetensors", update.samples);
  json root{{"role", role},
            {"step", step},
            {"loss", fmt::format("{}", update.loss)},  // as text: JSON has no NaN
            {"grad_norm", fmt::format("{}", update.grad_norm)},
            {"optimizer_steps", update.optimizer_steps},
            {"unchanged", update.unchanged},
            {"samples", json::array()}};
  for (const TrainingSample& sample : update.samples) root["samples"].push_back(scalars_of(sample));
  write_file_atomic(made / "dump.json", root.dump(1) + "\n");
  fs::remove_all(folder);
  fs::rename(made, folder);
}

UpdateDump read_dump(const fs::path& folder) {
  const fs::path path = folder / "dump.json";
  if (!fs::exists(path)) throw IoError(folder.string() + " holds no dump.json; give a folder of <run folder>/dumps");
  UpdateDump dump;
  try {
    const json root = json::parse(read_file(path));
    dump.role = root.at("role");
    dump.step = root.at("step");
    dump.loss = std::stod(root.at("loss").get<std::string>());
    dump.grad_norm = std::stod(root.at("grad_norm").get<std::string>());
    dump.optimizer_steps = root.at("optimizer_steps");
    dump.unchanged = root.at("unchanged");
    const SafetensorsFile file(folder / "samples.safetensors");
    PromptPtr before;
    for (size_t i = 0; i < root.at("samples").size(); ++i) {
      dump.samples.push_back(read_sample(file, i, root["samples"][i], before));
      before = dump.samples.back().trajectory->prompt;
    }
  } catch (const json::exception&) {
    throw IoError(path.string() + " is broken: a key is missing or of another type");
  }
  return dump;
}

}  // namespace tandem
