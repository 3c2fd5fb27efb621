#include "app/tune_options.h"

#include "app/lora_options.h"
#include "app/options.h"
#include "base/file.h"
#include "kernels/device_ops.h"

namespace tandem {

TuningSetOptions tuning_set_options(const TuningConfig& config, bool pairs, bool training) {
  const TuningDataConfig& data = config.data;
  TuningSetOptions options;
  for (const std::string& name : training ? data.train_files : data.val_files)
    options.files.push_back(expand_user(name));
  options.pairs = pairs;
  options.messages_key = data.messages_key;
  options.prompt_key = data.prompt_key, options.response_key = data.response_key;
  options.chosen_key = data.chosen_key, options.rejected_key = data.rejected_key;
  options.max_length = static_cast<size_t>(data.max_length);
  options.truncation = parse_truncation(data.truncation);
  options.max_samples = training ? data.train_max_samples : data.val_max_samples;
  options.shuffle = data.shuffle;
  options.seed = static_cast<uint64_t>(data.seed.value_or(config.trainer.seed));
  options.num_threads = static_cast<size_t>(data.num_workers);
  return options;
}

TunerOptions tuner_options(const TuningConfig& config, size_t samples_per_row, int64_t total_steps) {
  const TuningDataConfig& data = config.data;
  const auto a_row = static_cast<int64_t>(samples_per_row);
  TunerOptions options;
  options.model_path = resolve_model(config.model.path, "model.path");
  options.lora = lora_options(config.model, static_cast<uint64_t>(config.trainer.seed), "model.");
  options.device = kernels::choose_device(config.trainer.device);
  options.batching.mini_batch_samples = data.train_batch_size * a_row;
  options.batching.max_micro_tokens = std::max(data.max_token_len_per_gpu, data.max_length);
  options.batching.max_micro_samples = data.use_dynamic_bsz ? 0 : data.micro_batch_size_per_gpu.value_or(1);
  options.batching.may_recompute = config.model.enable_gradient_checkpointing;
  options.optimizer = optimizer_options(config.optim, total_steps);
  options.save = checkpoint_contents(config.checkpoint.save_contents);
  options.load = checkpoint_contents(config.checkpoint.load_contents);
  options.seed = static_cast<uint64_t>(config.trainer.seed);
  return options;
}

}  // namespace tandem
