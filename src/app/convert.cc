// tandem convert: a model folder, or a checkpoint of a run, as a Hugging Face folder in the wanted type.
#include "app/command.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "model/decoder_weights.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string from, to, dtype = "bf16";
};

fs::path source_folder(const std::string& from) {
  const fs::path folder(from);
  for (const fs::path& inside : {folder / "actor" / "huggingface", folder / "huggingface"})
    if (fs::exists(inside / "config.json")) return inside;
  return resolve_model(from);
}

int convert(const ConvertArguments& arguments) {
  const fs::path from = source_folder(arguments.from), to(arguments.to);
  if (fs::exists(to / "config.json")) throw ConfigError(to.string() + " already holds a model; name a new folder");
  const ModelConfig config = load_model_config(from);
  const WeightFolder files(from);
  check_tensors(config, files);
  DecoderWeights weights = empty_weights(config);
  load_weights(files, config, weights);
  fs::create_directories(to);
  save_weights(to, config, weights, arguments.dtype == "fp32" ? DType::kF32 : DType::kBF16);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool weights_or_config = name.find(".safetensors") != std::string::npos || name == "config.json";
    if (entry.is_regular_file() && !weights_or_config) fs::copy_file(entry.path(), to / name);
  }
  print_line(to.string());
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("convert", "write a model or a checkpoint as a Hugging Face folder");
  auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("from", arguments->from, "model folder, or global_step_N of a run")->required();
  command->add_option("to", arguments->to, "new folder")->required();
  command->add_option("--dtype", arguments->dtype, "type of the weights")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  command->callback([&action, arguments] { action = [arguments] { return convert(*arguments); }; });
}

}  // namespace tandem
