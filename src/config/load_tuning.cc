#include "config/load_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/log.h"
#include "config/fields.h"
#include "config/given.h"
#include "config/interpolate.h"
#include "config/verl_keys.h"

namespace tandem {
namespace {

constexpr int64_t kMaxCount = 1'000'000'000;
constexpr std::string_view kOneDevice = "on one device nothing is sharded or moved";
constexpr std::string_view kPacked = "sequences are always packed, never padded";
constexpr std::string_view kNoCode = "models are read from files, not from Python code";

// verl's keys of its SFT trainers, present and older.
constexpr AcceptedKey kAccepted[] = {
    {"_target_", "names a Python class"},
    {"*._target_", "names a Python class"},
    {"defaults", "Hydra's list of files: pass the files to Tandem instead"},
    {"hydra.*", "there is no Hydra: runs go to trainer.default_local_dir"},
    {"engine", "there is one engine"},
    {"engine.*", kOneDevice},
    {"profiler.*", "timing is always on: see timing_s/*"},
    {"use_remove_padding", kPacked},
    {"ulysses_sequence_parallel_size", kOneDevice},
    {"data.pad_mode", kPacked},
    {"data.multiturn.enable", "a row's columns decide"},
    {"data.val_batch_size_per_gpu", "validation is cut as training is"},
    {"data.balance_dp_token", kOneDevice},
    {"data.ignore_input_ids_mismatch", "rows whose prefixes do not agree with the whole are refused"},
    {"data.custom_cls.*", "rows are read from parquet and JSON lines"},
    {"data.use_shm", "files are mapped into memory as they are"},
    {"model.trust_remote_code", kNoCode},
    {"model.external_lib", kNoCode},
    {"model.use_remove_padding", kPacked},
    {"model.use_liger", "the kernels are Tandem's own, compiled ahead"},
    {"model.use_shm", "files are mapped into memory as they are"},
    {"model.strategy", kOneDevice},
    {"model.fsdp_config.*", kOneDevice},
    {"model.lora_alpha", "all weights are trained"},
    {"model.target_modules", "all weights are trained"},
    {"optim.total_training_steps", "taken from trainer.*"},
    {"optim.optimizer", "the optimizer is AdamW"},
    {"optim.optimizer_impl", "AdamW is Tandem's own"},
    {"optim.override_optimizer_config", "AdamW is set by lr, betas and weight_decay"},
    {"trainer.default_hdfs_dir", "checkpoints go to trainer.default_local_dir"},
    {"trainer.balance_batch", kOneDevice},
    {"trainer.checkpoint.*", "set checkpoint.*"},
};

struct OldName {
  std::string_view old_key, new_key;
};
constexpr OldName kOldNames[] = {
    {"model.partial_pretrain", "model.path"},
    {"data.multiturn.messages_key", "data.messages_key"},
    {"data.micro_batch_size", "data.micro_batch_size_per_gpu"},
    {"optim.warmup_steps_ratio", "optim.lr_warmup_steps_ratio"},
    {"optim.lr_scheduler", "optim.lr_scheduler_type"},
    {"trainer.max_actor_ckpt_to_keep", "trainer.max_ckpt_to_keep"},
};

class TuningLoader {
 public:
  explicit TuningLoader(GivenKeys given) : given_(std::move(given)) {
    for (const auto& [old_key, new_key] : kOldNames)
      if (const auto value = given_.find(old_key); value && !given_.find(new_key)) given_.set(new_key, *value);
  }

  TuningConfig load() {
    for (const auto& [key, value] : given_.values()) classify(key, value);
    for (const Field& field : fields_.fields) {
      if (const auto value = given_.find(field.key)) {
        assign_given(field, interpolate(*value, field.key, lookup_));
      } else if (auto* text = std::get_if<std::string*>(&field.member); text && (**text).find("${") != (**text).npos) {
        assign(field, interpolate(quoted_value(**text, "default"), field.key, lookup_));
      }
    }
    if (config_.data.micro_batch_size_per_gpu && !given_.find("data.use_dynamic_bsz"))
      config_.data.use_dynamic_bsz = false;
    validate(config_);
    return std::move(config_);
  }

 private:
  void classify(const std::string& key, const Value& value) const {
    if (fields_.find(key)) return;
    for (const Field& field : fields_.fields)
      if (field.is_dict() && key.starts_with(field.key + ".")) return;
    if (fields_.is_section(key) && value.is_empty()) return;
    for (const OldName& name : kOldNames)
      if (name.old_key == key) return;
    if (key == "model.lora_rank" || key == "model.lora.rank") {
      if (as_number(value.text).value_or(0) > 0)
        fail_at(value, key + "=" + to_text(value) + " is refused: all weights are trained; set it to 0");
      return;
    }
    for (const AcceptedKey& row : kAccepted) {
      if (!matches(row.pattern, key)) continue;
      log_info(fmt::format("{}={} has no effect: {}", key, to_text(value), row.reason));
      return;
    }
    fail_at(value, fmt::format("unknown key '{}'; the nearest known key is {}", key, nearest(key)));
  }

  // The key whose last part shares the longest run of letters, those of the same section first.
  std::string nearest(const std::string& key) const {
    std::string best;
    size_t most = 0;
    for (const Field& field : fields_.fields) {
      const std::string wanted = key.substr(key.rfind('.') + 1), name = field.key.substr(field.key.rfind('.') + 1);
      size_t shared = key.substr(0, key.rfind('.')) == field.key.substr(0, field.key.rfind('.')) ? 5 : 0;
      for (size_t i = 0; i < wanted.size(); ++i)
        for (size_t length = 2; i + length <= wanted.size(); ++length)
          if (name.find(wanted.substr(i, length)) != std::string::npos) shared = std::max(shared, 2 * length);
      if (shared > most || (shared == most && field.key.size() < best.size())) most = shared, best = field.key;
    }
    return best.empty() ? fields_.fields.front().key : best;
  }

  // Trackers of verl's that are services elsewhere are left to make_tracker's warning.
  void assign_given(const Field& field, Value value) {
    if (field.key == "trainer.logger") {
      if (value.is_scalar())
        value = value.text.starts_with('[') ? parse_override_value(value.text, value.origin) : value;
      std::erase_if(value.items, [](const Value& item) {
        if (std::ranges::find(foreign_trackers(), item.text) == foreign_trackers().end()) return false;
        log_info("trainer.logger: " + item.text + " has no effect: metrics go to console, file and tensorboard");
        return true;
      });
    }
    assign(field, value);
  }

  std::optional<Value> lookup(std::string_view key) const {
    if (auto value = given_.find(key)) return value;
    const Field* field = defaults_.find(key);
    if (!field) return std::nullopt;
    return parse_yaml("value: " + field_text(*field), "default").entries.at(0).second;
  }

  GivenKeys given_;
  TuningConfig config_, default_config_;
  const FieldList fields_ = list_fields(config_);
  const FieldList defaults_ = list_fields(default_config_);
  const Lookup lookup_ = [this](std::string_view key) { return lookup(key); };
};

}  // namespace

void validate(const TuningConfig& config) {
  TuningConfig copy = config;
  const FieldList fields = list_fields(copy);
  const auto require = [&](bool ok, const std::string& key, const std::string& what) {
    if (!ok) throw ConfigError(fmt::format("{}={}: {}", key, field_text(*fields.find(key)), what));
  };
  const auto between = [&](int64_t value, int64_t least, int64_t most, const std::string& key) {
    require(least <= value && value <= most, key, fmt::format("must be between {} and {}", least, most));
  };
  const auto share = [&](double value, const std::string& key) {
    require(value >= 0 && value <= 1, key, "must be between 0 and 1");
  };
  const auto limit = [&](int64_t value, const std::string& key) {
    require(value == -1 || (value >= 1 && value <= kMaxCount), key, "must be 1 or more, or -1 for none");
  };
  const TuningDataConfig& data = config.data;
  require(!config.model.path.empty(), "model.path", "is not set: name the model's folder");
  require(!data.train_files.empty(), "data.train_files", "is empty: name at least one .parquet or .jsonl file");
  between(data.train_batch_size, 1, 1'000'000, "data.train_batch_size");
  between(data.max_length, 2, 10'000'000, "data.max_length");
  between(data.max_token_len_per_gpu, 1, kMaxCount, "data.max_token_len_per_gpu");
  between(data.micro_batch_size_per_gpu.value_or(1), 1, 1'000'000, "data.micro_batch_size_per_gpu");
  require(data.use_dynamic_bsz || data.micro_batch_size_per_gpu, "data.use_dynamic_bsz",
          "then data.micro_batch_size_per_gpu must be set");
  between(data.num_workers, 0, 1024, "data.num_workers");
  limit(data.train_max_samples, "data.train_max_samples");
  limit(data.val_max_samples, "data.val_max_samples");
  const OptimConfig& optim = config.optim;
  require(std::isfinite(optim.lr) && optim.lr >= 0, "optim.lr", "must be a finite number, 0 or more");
  require(optim.betas.size() == 2 && std::ranges::all_of(optim.betas, [](double b) { return b >= 0 && b < 1; }),
          "optim.betas", "must be two numbers, each 0 or more and below 1");
  require(std::isfinite(optim.weight_decay) && optim.weight_decay >= 0, "optim.weight_decay", "must be 0 or more");
  require(std::isfinite(optim.clip_grad) && optim.clip_grad > 0, "optim.clip_grad", "must be above 0");
  between(optim.lr_warmup_steps, -1, kMaxCount, "optim.lr_warmup_steps");
  share(optim.lr_warmup_steps_ratio, "optim.lr_warmup_steps_ratio");
  share(optim.min_lr_ratio, "optim.min_lr_ratio");
  require(std::isfinite(optim.num_cycles) && optim.num_cycles >= 0, "optim.num_cycles", "must be 0 or more");
  const TuningTrainerConfig& trainer = config.trainer;
  between(trainer.total_epochs, 1, kMaxCount, "trainer.total_epochs");
  between(trainer.total_training_steps.value_or(1), 1, kMaxCount, "trainer.total_training_steps");
  between(trainer.max_ckpt_to_keep.value_or(1), 1, kMaxCount, "trainer.max_ckpt_to_keep");
  limit(trainer.save_freq, "trainer.save_freq");
  limit(trainer.test_freq, "trainer.test_freq");
  require(trainer.resume_mode != "resume_path" || trainer.resume_from_path.value_or("") != "",
          "trainer.resume_from_path", "trainer.resume_mode=resume_path needs it");
  require(trainer.nnodes == 1, "trainer.nnodes", "one machine is supported so far: set it to 1");
  require(trainer.n_gpus_per_node == 1, "trainer.n_gpus_per_node", "one device is supported so far: set it to 1");
  between(trainer.num_threads, 0, 1024, "trainer.num_threads");
  require(trainer.seed >= 0, "trainer.seed", "must be 0 or more");
}

TuningConfig load_tuning_config(const std::vector<std::filesystem::path>& yaml_files,
                                std::span<const std::string> overrides) {
  GivenKeys given;
  for (const auto& path : yaml_files) given.set("", parse_yaml(read_file(path), path.string()));
  for (const std::string& text : overrides) given.apply(parse_override(text));
  return TuningLoader(std::move(given)).load();
}

}  // namespace tandem
