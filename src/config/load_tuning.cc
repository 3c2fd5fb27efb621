#include "config/load_tuning.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/checker.h"
#include "config/given.h"
#include "config/interpolate.h"
#include "config/verl_keys.h"

namespace tandem {
namespace {

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
    {"profiler.*", "timing is always on: see timing_s/*; trainer.profile.steps names the steps to trace"},
    {"global_profiler.*", "timing is always on: see timing_s/*; trainer.profile.steps names the steps to trace"},
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
    {"model.lora.*", "model.lora_rank and its kin are read"},
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
    {"global_profiler.steps", "trainer.profile.steps"},
};

class TuningLoader {
 public:
  TuningLoader(GivenKeys given, Purpose purpose) : given_(std::move(given)), purpose_(purpose) {
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
    validate(config_, purpose_);
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
    if (key == "model.lora.rank" && as_number(value.text).value_or(0) > 0)
      fail_at(value, key + "=" + to_text(value) + " is refused: use model.lora_rank");
    for (const AcceptedKey& row : kAccepted) {
      if (!matches(row.pattern, key)) continue;
      log_info(fmt::format("{}={} has no effect: {}", key, to_text(value), row.reason));
      return;
    }
    fail_at(value, fmt::format("unknown key '{}'; the nearest known key is {}", key, nearest(key)));
  }

  std::string nearest(const std::string& key) const {
    std::vector<std::string_view> known;
    for (const Field& field : fields_.fields) known.push_back(field.key);
    for (const AcceptedKey& row : kAccepted) known.push_back(row.pattern);
    return nearest_of(key, known);
  }

  void assign_given(const Field& field, Value value) const {
    if (field.key == "trainer.logger")
      for (const std::string& note : drop_foreign_trackers(value)) log_info(note);
    assign(field, value);
  }

  std::optional<Value> lookup(std::string_view key) const {
    if (auto value = given_.find(key)) return value;
    const Field* field = defaults_.find(key);
    if (!field) return std::nullopt;
    return parse_yaml("value: " + field_text(*field), "default").entries.at(0).second;
  }

  GivenKeys given_;
  Purpose purpose_;
  TuningConfig config_, default_config_;
  const FieldList fields_ = list_fields(config_);
  const FieldList defaults_ = list_fields(default_config_);
  const Lookup lookup_ = [this](std::string_view key) { return lookup(key); };
};

}  // namespace

void validate(const TuningConfig& config, Purpose purpose) {
  ConfigChecker<TuningConfig> check(config);
  check.choices();
  const TuningDataConfig& data = config.data;
  if (purpose == Purpose::kRun) {
    check.require(!config.model.path.empty(), "model.path", "is not set: name the model's folder");
    check.require(!data.train_files.empty(), "data.train_files", "is empty: name at least one .parquet or .jsonl file");
  }
  check.between(data.train_batch_size, 1, kMaxBatch, "data.train_batch_size");
  check.between(data.max_length, 2, kMaxLength, "data.max_length");
  check.between(data.max_token_len_per_gpu, 1, kMaxCount, "data.max_token_len_per_gpu");
  check.between(data.micro_batch_size_per_gpu.value_or(1), 1, kMaxBatch, "data.micro_batch_size_per_gpu");
  check.require(data.use_dynamic_bsz || data.micro_batch_size_per_gpu, "data.use_dynamic_bsz",
                "then data.micro_batch_size_per_gpu must be set");
  check.between(data.num_workers, 0, 1024, "data.num_workers");
  check.limit_or_none(data.train_max_samples, "data.train_max_samples");
  check.limit_or_none(data.val_max_samples, "data.val_max_samples");
  check_lora(check, config.model, "model.");
  check_optim(check, config.optim, "optim.");
  const TuningTrainerConfig& trainer = config.trainer;
  check.between(trainer.total_epochs, 1, kMaxCount, "trainer.total_epochs");
  check.between(trainer.total_training_steps.value_or(1), 1, kMaxCount, "trainer.total_training_steps");
  check.between(trainer.max_ckpt_to_keep.value_or(1), 1, kMaxCount, "trainer.max_ckpt_to_keep");
  check.at_least(config.checkpoint.max_write_mb_per_s, 0, "checkpoint.max_write_mb_per_s");
  check.limit_or_none(trainer.save_freq, "trainer.save_freq");
  check.limit_or_none(trainer.test_freq, "trainer.test_freq");
  check.require(trainer.resume_mode != "resume_path" || trainer.resume_from_path.value_or("") != "",
                "trainer.resume_from_path", "trainer.resume_mode=resume_path needs it");
  check.require(trainer.nnodes == 1, "trainer.nnodes", "one machine is supported so far: set it to 1");
  check.require(trainer.n_gpus_per_node == 1, "trainer.n_gpus_per_node", "one device is supported so far: set it to 1");
  check.between(trainer.num_threads, 0, 1024, "trainer.num_threads");
  check_outlooks(check, trainer);
  check.require(trainer.seed >= 0, "trainer.seed", "must be 0 or more");
  if (check.problem()) throw ConfigError(check.problem()->text);
}

TuningConfig load_tuning_config(const std::vector<std::filesystem::path>& yaml_files,
                                std::span<const std::string> overrides, Purpose purpose) {
  GivenKeys given;
  for (const auto& path : yaml_files) given.set("", parse_yaml(read_file(path), path.string()));
  for (const std::string& text : overrides) given.apply(parse_override(text));
  return TuningLoader(std::move(given), purpose).load();
}

}  // namespace tandem
