#include "config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/file.h"
#include "base/log.h"
#include "config/fields.h"
#include "config/given.h"
#include "config/interpolate.h"
#include "config/validate.h"
#include "config/verl_keys.h"

namespace tandem {
namespace {

class Loader {
 public:
  Loader(const GivenKeys& given, Purpose purpose) : given_(given), purpose_(purpose) {}

  LoadedConfig load() {
    for (const auto& [key, value] : given_.values()) classify(key, value);
    for (const Field& field : fields_.fields)
      if (const auto value = given_.find(field.key)) assign_given(field, *value);
    for (const Field& field : fields_.fields) fill_default(field);
    follow_other_keys();
    refuse_critic_mismatch();
    describe_accepted();
    if (const auto problem = find_problem(out_.config, purpose_)) fail_problem(*problem);
    auto more = find_warnings(out_.config);
    std::ranges::move(more, std::back_inserter(out_.warnings));
    return std::move(out_);
  }

 private:
  // The dict field that `key` is, or is a part of.
  bool in_dict_field(std::string_view key) const {
    return std::ranges::any_of(fields_.fields, [&](const Field& field) {
      return field.is_dict() && key.starts_with(field.key) &&
             (key.size() == field.key.size() || key[field.key.size()] == '.');
    });
  }

  void classify(const std::string& key, const Value& written) {
    if (in_dict_field(key)) return;
    if (fields_.is_section(key)) {
      if (!written.is_empty()) fail_section(key, written);
      return;
    }
    const bool honoured = fields_.find(key) != nullptr;
    const KeyVerdict verdict = classify_key(key, honoured ? filled(key, written) : filled_if_possible(key, written));
    switch (verdict.key_class) {
      case KeyClass::kHonoured:
        return;
      case KeyClass::kRefused:
        fail_refused(key, written, verdict);
      case KeyClass::kUnknown:
        fail_at(written, fmt::format("unknown key '{}'; the nearest known key is {}", key, nearest_key(key)));
      case KeyClass::kAccepted:
        if (written.kind != Value::Kind::kNull) accepted_[verdict.pattern].push_back({key, written, verdict.text});
    }
  }

  [[noreturn]] void fail_refused(const std::string& key, const Value& written, const KeyVerdict& verdict) const {
    const auto twin = given_.find(key + "_per_gpu");
    if (key.ends_with("micro_batch_size") && twin && twin->kind != Value::Kind::kNull)
      fail_at(written, fmt::format("{0} and {0}_per_gpu are both set: keep {0}_per_gpu", key));
    fail_at(written, fmt::format("{}={} is refused: {}", key, to_text(written), verdict.text));
  }

  // Names the key of the section that the value was most likely meant for.
  [[noreturn]] void fail_section(const std::string& key, const Value& value) const {
    std::string best;
    Config scratch;
    for (const Field& field : list_fields(scratch).fields) {
      if (!field.key.starts_with(key + ".") || field.key.find('.', key.size() + 1) != std::string::npos) continue;
      try {
        assign(field, value);
      } catch (const ConfigError&) {
        if (best.empty()) best = field.key;
        continue;
      }
      best = field.key;
      break;
    }
    const std::string hint = best.empty() ? key + ".<key>=..." : best + "=" + to_text(value);
    fail_at(value, fmt::format("{} is a section, not a value: set one of its keys, e.g. {}", key, hint));
  }

  void assign_given(const Field& field, const Value& value) {
    Value full = filled(field.key, value);
    if (field.key == "trainer.profile.steps" && full.kind == Value::Kind::kNull) return;  // verl's word for none
    if (field.key == "trainer.logger") std::ranges::move(drop_foreign_trackers(full), std::back_inserter(out_.notes));
    assign(field, full);
  }

  void fill_default(const Field& field) {
    auto* text = std::get_if<std::string*>(&field.member);
    if (text && !given_.find(field.key) && (**text).find("${") != std::string::npos)
      assign(field, filled(field.key, quoted_value(**text, "default")));
  }

  // Defaults that follow another key where the user set only that one.
  void follow_other_keys() {
    ActorConfig& actor = out_.config.actor_rollout_ref.actor;
    CriticConfig& critic = out_.config.critic;
    if (actor.ppo_micro_batch_size_per_gpu && !given_.find("actor_rollout_ref.actor.use_dynamic_bsz"))
      actor.use_dynamic_bsz = false;
    if (critic.ppo_micro_batch_size_per_gpu && !given_.find("critic.use_dynamic_bsz")) critic.use_dynamic_bsz = false;
    if (averages_in_response(actor.policy_loss.loss_mode) && !given_.find("actor_rollout_ref.actor.loss_agg_mode"))
      actor.loss_agg_mode = "seq-mean-token-mean";
  }

  void refuse_critic_mismatch() const {
    const auto enable = given_.find("critic.enable");
    if (!enable || !enable->is_scalar()) return;
    const std::string& estimator = out_.config.algorithm.adv_estimator;
    if (as_bool(enable->text).value_or(false) != (estimator == "gae"))
      fail_at(*enable, fmt::format("critic.enable={} does not go with algorithm.adv_estimator={}: gae trains a critic, "
                                   "the others have none; leave critic.enable out",
                                   enable->text, estimator));
  }

  // One line a key; many keys of one row share a line.
  void describe_accepted() {
    for (const auto& [pattern, keys] : accepted_) {
      if (keys.size() > 3)
        out_.notes.push_back(fmt::format("{} ({} keys) has no effect: {}", pattern, keys.size(), keys[0].reason));
      else
        for (const Accepted& key : keys)
          out_.notes.push_back(fmt::format("{}={} has no effect: {}", key.key, to_text(key.value), key.reason));
    }
  }

  [[noreturn]] void fail_problem(const Problem& problem) const {
    const auto value = given_.find(problem.key);
    fail_at(value ? *value : Value{}, problem.text);
  }

  std::optional<Value> lookup(std::string_view key) const {
    if (auto value = given_.find(key)) return value;
    const Field* field = defaults_.find(key);
    if (!field) return std::nullopt;
    return parse_yaml("value: " + field_text(*field), "default").entries.at(0).second;
  }

  Value filled(std::string_view key, const Value& value) const { return interpolate(value, key, lookup_); }

  // verl's keys without effect may name keys that only verl has.
  Value filled_if_possible(std::string_view key, const Value& value) const {
    try {
      return filled(key, value);
    } catch (const ConfigError&) {
      return Value{};
    }
  }

  struct Accepted {
    std::string key;
    Value value;
    std::string_view reason;
  };

  const GivenKeys& given_;
  Purpose purpose_;
  LoadedConfig out_;
  Config default_config_;
  const FieldList fields_ = list_fields(out_.config);
  const FieldList defaults_ = list_fields(default_config_);
  const Lookup lookup_ = [this](std::string_view key) { return lookup(key); };
  std::map<std::string_view, std::vector<Accepted>> accepted_;
};

void apply_overrides(GivenKeys& given, std::span<const std::string> overrides) {
  for (const std::string& text : overrides) given.apply(parse_override(text));
}

}  // namespace

LoadedConfig parse_config(std::string_view yaml, std::string_view name, std::span<const std::string> overrides) {
  GivenKeys given;
  given.set("", parse_yaml(yaml, name));
  apply_overrides(given, overrides);
  return Loader(given, Purpose::kRun).load();
}

LoadedConfig load_config_with_notes(const std::vector<std::filesystem::path>& yaml_files,
                                    std::span<const std::string> overrides, Purpose purpose) {
  GivenKeys given;
  for (const auto& path : yaml_files) given.set("", parse_yaml(read_file(path), path.string()));
  apply_overrides(given, overrides);
  return Loader(given, purpose).load();
}

Config load_config(const std::vector<std::filesystem::path>& yaml_files, std::span<const std::string> overrides,
                   Purpose purpose) {
  LoadedConfig loaded = load_config_with_notes(yaml_files, overrides, purpose);
  for (const std::string& note : loaded.notes) log_info(note);
  for (const std::string& warning : loaded.warnings) log_warn(warning);
  return std::move(loaded.config);
}

}  // namespace tandem
