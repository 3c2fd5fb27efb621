// tandem convert: a model folder, or a checkpoint of a run, as a Hugging Face folder in the wanted type.
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/lora_options.h"
#include "app/options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/manager.h"
#include "engine/model_state.h"
#include "model/decoder_weights.h"
#include "model/lora.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string from, to, adapter, dtype = "bf16", format = "hf";
};

struct Source {
  fs::path model, adapter;  // no adapter: empty
};

Source source_of(const ConvertArguments& arguments) {
  const fs::path folder(arguments.from);
  if (!arguments.adapter.empty())
    return {resolve_model(arguments.from), resolve_adapter(arguments.adapter, "--adapter")};
  if (const fs::path adapter = find_adapter(folder); !adapter.empty()) {
    const std::string base = adapter_base_model(adapter);
    if (base.empty())
      throw ConfigError(adapter.string() +
                        " does not say what model it belongs to; use tandem convert MODEL OUT "
                        "--adapter " +
                        arguments.from);
    return {resolve_model(base, "base_model_name_or_path of the adapter"), adapter};
  }
  for (const fs::path& inside : {folder / "actor" / "huggingface", folder / "huggingface"})
    if (fs::exists(inside / "config.json")) return {inside, {}};
  return {resolve_model(arguments.from), {}};
}

// The checkpoint of a run that has not done a step.
fs::path write_checkpoint(const fs::path& root, const fs::path& model, const ModelConfig& config,
                          DecoderWeights weights) {
  ModelStateCopy state;
  state.weights = std::move(weights);
  const auto write = [&](const fs::path& folder) {
    save_model_copy(folder / "actor", model, config, state, {}, nullptr);
    const nlohmann::json data{{"epoch", 0}, {"next_batch_in_epoch", 0}, {"fingerprint", 0}, {"taken", 0}};
    write_file_atomic(folder / "data.json", data.dump(2) + "\n");
  };
  return CheckpointManager(root).save(0, write).folder;
}

void write_model(const fs::path& to, const fs::path& model, const ModelConfig& config, const DecoderWeights& weights,
                 DType dtype) {
  fs::create_directories(to);
  save_weights(to, config, weights, dtype);
  for (const auto& entry : fs::directory_iterator(model)) {
    const std::string name = entry.path().filename().string();
    const bool weights_or_config = name.find(".safetensors") != std::string::npos || name == "config.json";
    if (entry.is_regular_file() && !weights_or_config) fs::copy_file(entry.path(), to / name);
  }
}

void refuse_existing(const ConvertArguments& arguments) {
  const fs::path to(arguments.to);
  if (fs::exists(to / "config.json")) throw ConfigError(to.string() + " already holds a model; name a new folder");
  if (arguments.format == "checkpoint" && !CheckpointManager(to).complete_steps().empty())
    throw ConfigError(to.string() + " already holds checkpoints; name a new folder");
}

int convert(const ConvertArguments& arguments) {
  const Source from = source_of(arguments);
  refuse_existing(arguments);
  const ModelConfig config = load_model_config(from.model);
  const WeightFolder files(from.model);
  check_tensors(config, files);
  DecoderWeights weights = empty_weights(config);
  load_weights(files, config, weights);
  if (!from.adapter.empty()) {
    attach_adapters(weights, load_adapters(from.adapter, config));
    merge_adapters(weights);
  }
  if (arguments.format == "checkpoint") {
    print_line(write_checkpoint(arguments.to, from.model, config, std::move(weights)).string());
    return 0;
  }
  write_model(arguments.to, from.model, config, weights, arguments.dtype == "fp32" ? DType::kF32 : DType::kBF16);
  print_line(arguments.to);
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("convert",
                         "write a model or a checkpoint as a Hugging Face folder, or as a checkpoint\n\n"
                         "LoRA adapters are merged into the model they belong to. --format checkpoint makes\n"
                         "global_step_0 in the new folder: a run with trainer.default_local_dir there begins\n"
                         "from it.");
  auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("from", arguments->from, "model folder, or global_step_N of a run")->required();
  command->add_option("to", arguments->to, "new folder")->required();
  command->add_option("--adapter", arguments->adapter, "merge the LoRA adapter of this folder, or of a global_step_N");
  command->add_option("--format", arguments->format, "hf: a model folder; checkpoint: of a run, fp32")
      ->check(CLI::IsMember({"hf", "checkpoint"}))
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "type of a model folder's weights")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  command->callback([&action, arguments] { action = [arguments] { return convert(*arguments); }; });
}

}  // namespace tandem
