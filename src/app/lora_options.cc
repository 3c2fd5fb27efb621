#include "app/lora_options.h"

#include "base/error.h"
#include "base/file.h"

namespace tandem {

std::filesystem::path resolve_adapter(const std::string& path, const std::string& key) {
  const std::filesystem::path adapter = find_adapter(expand_user(path));
  if (adapter.empty())
    throw ConfigError(key + "=" + path +
                      ": there is no adapter_config.json in it; name the folder of an adapter, or a global_step_N of a "
                      "run that trained one");
  return adapter;
}

LoraOptions given_adapter(const std::string& path) {
  LoraOptions options;
  if (!path.empty()) options.adapter = resolve_adapter(path, "--adapter");
  return options;
}

LoraOptions lora_options(const PolicyModelConfig& model, uint64_t seed, const std::string& key) {
  LoraOptions options;
  if (!model.uses_lora()) return options;
  options.rank = model.lora_rank;
  options.alpha = static_cast<double>(model.lora_alpha);
  options.target_modules = model.target_modules;
  options.exclude_modules = model.exclude_modules;
  if (model.lora_adapter_path) {
    options.adapter = resolve_adapter(*model.lora_adapter_path, key + "lora_adapter_path");
  } else {
    lora_modules(options.target_modules, options.exclude_modules, key);  // refuses unknown names
  }
  options.seed = seed;
  return options;
}

}  // namespace tandem
