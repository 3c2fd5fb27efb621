#include "config/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/fields.h"
#include "config/interpolate.h"

namespace tandem {
namespace {

constexpr size_t kCommentColumn = 48;

size_t depth_of(std::string_view key) { return static_cast<size_t>(std::ranges::count(key, '.')); }
std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }
std::string parent_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

// The default's text; what it refers to is taken from `fields`.
template <class C>
std::string default_text(const Field& default_field, const FieldList& fields) {
  const auto* text = std::get_if<std::string*>(&default_field.member);
  if (!text || (**text).find("${") == std::string::npos) return field_text(default_field);
  const Lookup lookup = [&](std::string_view key) -> std::optional<Value> {
    const Field* field = fields.find(key);
    if (!field) return std::nullopt;
    return parse_yaml("value: " + field_text(*field), "").entries.at(0).second;
  };
  C scratch;
  const FieldList scratch_fields = list_fields(scratch);
  const Field& filled = *scratch_fields.find(default_field.key);
  assign(filled, interpolate(quoted_value(**text, "default"), default_field.key, lookup));
  return field_text(filled);
}

// Calls `section` and `leaf` in an order in which nested YAML can be written: a section's own keys before its sections.
template <class OnSection, class OnLeaf>
void walk(const FieldList& list, const std::string& section, const OnSection& on_section, const OnLeaf& on_leaf) {
  for (const Field& field : list.fields)
    if (parent_of(field.key) == section) on_leaf(field);
  for (const Section& child : list.sections) {
    if (parent_of(child.key) != section) continue;
    on_section(child);
    walk(list, child.key, on_section, on_leaf);
  }
}

std::string indent(const std::string& key) { return std::string(2 * depth_of(key), ' '); }

std::string derived_comment(const Config& config, std::optional<int64_t> train_rows) {
  std::string out = "\n# What follows from it:\n";
  for (const auto& [name, value] : describe_sizes(config, train_rows))
    out += fmt::format("#   {:<28}{}\n", name, value);
  return out;
}

template <class C>
std::string describe(const C& config) {
  C copy = config, defaults;
  const FieldList fields = list_fields(copy), default_fields = list_fields(defaults);
  std::string out = "# Keys marked * differ from their default.\n";
  const auto on_section = [&](const Section& section) {
    const std::string head = indent(section.key) + last_part(section.key) + ":";
    if (depth_of(section.key) == 0) out += "\n";
    out += fmt::format("{:<{}}# {}\n", head, kCommentColumn, section.doc);
  };
  const auto on_leaf = [&](const Field& field) {
    const std::string value = field_text(field);
    const std::string usual = default_text<C>(*default_fields.find(field.key), fields);
    const std::string head = indent(field.key) + last_part(field.key) + ": " + value;
    const std::string mark = value == usual ? "" : fmt::format("* (default {}) ", usual);
    const std::string words = field.choices.empty() ? "" : fmt::format(" [{}]", fmt::join(field.choices, ", "));
    out += fmt::format("{:<{}} # {}{}{}\n", head, kCommentColumn - 1, mark, field.doc, words);
  };
  walk(fields, "", on_section, on_leaf);
  return out;
}

template <class C>
std::string yaml_of(const C& config) {
  C copy = config;
  std::string out;
  walk(
      list_fields(copy), "",
      [&](const Section& section) { out += indent(section.key) + last_part(section.key) + ":\n"; },
      [&](const Field& field) { out += indent(field.key) + last_part(field.key) + ": " + field_text(field) + "\n"; });
  return out;
}

}  // namespace

NamedSizes describe_sizes(const Config& config, std::optional<int64_t> train_rows) {
  const DerivedSizes sizes = derived_sizes(config);
  const ActorConfig& actor = config.actor_rollout_ref.actor;
  NamedSizes out;
  const auto line = [&](std::string_view name, std::string value) { out.emplace_back(name, std::move(value)); };
  line("prompts a step", fmt::format("{}", sizes.prompts_per_step));
  line("samples a step", fmt::format("{} = {} prompts x {} (rollout.n)", sizes.samples_per_step, sizes.prompts_per_step,
                                     config.actor_rollout_ref.rollout.n));
  line("mini-batches a pass",
       fmt::format("{} of {} samples = {} prompts x {}", sizes.mini_batches, sizes.samples_per_mini_batch,
                   actor.ppo_mini_batch_size, config.actor_rollout_ref.rollout.n));
  line("optimizer steps a step", fmt::format("{} = {} mini-batches x {} (ppo_epochs)", sizes.optimizer_steps_per_step,
                                             sizes.mini_batches, actor.ppo_epochs));
  line("micro-batches", actor.use_dynamic_bsz
                            ? fmt::format("at most {} tokens on CPU, {} on a GPU",
                                          micro_batch_token_limit(config, false), micro_batch_token_limit(config, true))
                            : fmt::format("{} samples", actor.ppo_micro_batch_size_per_gpu.value_or(0)));
  line("tokens a sample, at most",
       fmt::format("{} = {} prompt + {} response", sizes.model_length, sizes.prompt_length, sizes.response_length));
  line("tokens a step, at most", fmt::format("{}", sizes.max_tokens_per_step));
  if (train_rows) {
    const int64_t steps = total_steps(config, *train_rows);
    line("steps", fmt::format("{} ({} rows, {} an epoch)", steps, *train_rows, *train_rows / sizes.prompts_per_step));
    line("optimizer steps", fmt::format("{}", steps * sizes.optimizer_steps_per_step));
  }
  return out;
}

std::string describe_config(const Config& config, std::optional<int64_t> train_rows) {
  return describe(config) + derived_comment(config, train_rows);
}
std::string describe_config(const TuningConfig& config) { return describe(config); }

std::string resolved_yaml(const Config& config) { return yaml_of(config); }
std::string resolved_yaml(const TuningConfig& config) { return yaml_of(config); }

}  // namespace tandem
