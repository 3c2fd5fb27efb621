// tandem convert: a model folder, or a checkpoint of a run, as a Hugging Face folder in the wanted type.
#include "app/command.h"
#include "app/lora_options.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "model/decoder_weights.h"
#include "model/lora.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string from, to, adapter, dtype = "bf16";
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

int convert(const ConvertArguments& arguments) {
  const Source from = source_of(arguments);
  const fs::path to(arguments.to);
  if (fs::exists(to / "config.json")) throw ConfigError(to.string() + " already holds a model; name a new folder");
  const ModelConfig config = load_model_config(from.model);
  const WeightFolder files(from.model);
  check_tensors(config, files);
  DecoderWeights weights = empty_weights(config);
  load_weights(files, config, weights);
  if (!from.adapter.empty()) {
    attach_adapters(weights, load_adapters(from.adapter, config));
    merge_adapters(weights);
  }
  fs::create_directories(to);
  save_weights(to, config, weights, arguments.dtype == "fp32" ? DType::kF32 : DType::kBF16);
  for (const auto& entry : fs::directory_iterator(from.model)) {
    const std::string name = entry.path().filename().string();
    const bool weights_or_config = name.find(".safetensors") != std::string::npos || name == "config.json";
    if (entry.is_regular_file() && !weights_or_config) fs::copy_file(entry.path(), to / name);
  }
  print_line(to.string());
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("convert",
                                     "write a model or a checkpoint as a Hugging Face folder\n\n"
                                     "LoRA adapters are merged into the model they belong to.");
  auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("from", arguments->from, "model folder, or global_step_N of a run")->required();
  command->add_option("to", arguments->to, "new folder")->required();
  command->add_option("--adapter", arguments->adapter, "merge the LoRA adapter of this folder, or of a global_step_N");
  command->add_option("--dtype", arguments->dtype, "type of the weights")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  command->callback([&action, arguments] { action = [arguments] { return convert(*arguments); }; });
}

}  // namespace tandem
