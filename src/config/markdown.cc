#include <fmt/format.h>

#include <algorithm>

#include "config/describe.h"
#include "config/fields.h"
#include "config/verl_keys.h"

namespace tandem {
namespace {

constexpr std::string_view kHead = R"(# Configuration

<!-- Made by config_markdown() in src/config/markdown.cc from the field lists; do not edit. -->

Keys, nesting and defaults are verl's. They come from YAML files and from `key=value` arguments, the later winning:

    tandem train my.yaml actor_rollout_ref.model.path=~/models/Qwen3-0.6B actor_rollout_ref.rollout.n=8

Arguments follow Hydra's grammar:

| form | meaning |
|---|---|
| `key=value`, `+key=value`, `++key=value` | set the key |
| `~key` | back to its default |
| `null`, `None` | no value |
| `true`, `False`, `12`, `1_000`, `1e-6` | flags and numbers |
| `text`, `'text, with a comma'`, `key=` | text; nothing after `=` is the empty text |
| `[a,b]`, `{k: v}` | lists and dicts |
| `${a.b}`, `${.b}` | the value of another key, of a neighbour |
| `${oc.env:NAME,default}`, `${oc.select:a.b,default}` | an environment variable, a key that may be absent |
| `\${` | the two characters themselves |

`tandem train --print-config ...` shows the whole configuration, what differs from the defaults, and the sizes that
follow from it. All batch sizes count prompts; samples are prompts times `actor_rollout_ref.rollout.n`.

)";

// A cell may hold neither a bar nor, outside code, an unescaped star.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += (c == '|' || c == '*' || c == '<') ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string default_of(const Field& field) {
  const auto* text = std::get_if<std::string*>(&field.member);
  return text ? (**text).empty() ? "" : code(**text) : code(field_text(field));
}

std::string field_tables(const FieldList& list, std::string_view of = "") {
  std::string out;
  for (const Section& section : list.sections) {
    std::string rows;
    for (const Field& field : list.fields) {
      const size_t dot = field.key.rfind('.');
      if (field.key.substr(0, dot) != section.key) continue;
      const std::string choices =
          field.choices.empty() ? "" : fmt::format(" One of `{}`.", fmt::join(field.choices, "`, `"));
      rows += fmt::format("| `{}` | {} | {}.{} |\n", field.key.substr(dot + 1), default_of(field), cell(field.doc),
                          choices);
    }
    if (!rows.empty())
      out += fmt::format("## {}{}\n\n{}.\n\n| key | default | meaning |\n|---|---|---|\n{}\n", of, section.key,
                         cell(section.doc), rows);
  }
  return out;
}

std::string changed_table(const FieldList& list) {
  std::string out = "## Defaults that differ from verl's\n\n| key | verl | Tandem | why |\n|---|---|---|---|\n";
  for (const ChangedDefault& row : changed_defaults())
    out += fmt::format("| `{}` | `{}` | {} | {} |\n", row.key, row.verl_default, default_of(*list.find(row.key)),
                       cell(row.reason));
  return out + "\n";
}

std::string verl_tables() {
  std::string out =
      "## verl's keys that are refused\n\nBetter no run than one that is not what was asked for.\n\n"
      "| key | values | instead |\n|---|---|---|\n";
  for (const RefusedKey& row : refused_keys())
    out += fmt::format("| `{}` | {} | {} |\n", row.pattern, row.values.empty() ? "all" : cell(row.values),
                       cell(row.instead));
  out +=
      "\n## verl's keys without effect\n\nThey are accepted, and the run says why they do nothing.\n\n"
      "| key | why |\n|---|---|\n";
  for (const AcceptedKey& row : accepted_keys()) out += fmt::format("| `{}` | {} |\n", row.pattern, cell(row.reason));
  for (const RefusedKey& row : refused_keys())
    if (!row.reason.empty() && !row.values.empty())
      out += fmt::format("| `{}`, unless refused | {} |\n", row.pattern, cell(row.reason));
  out += "\n## Older names\n\n| name | stands for |\n|---|---|\n";
  for (const RenamedKey& row : renamed_keys()) {
    const std::string star = row.old_key.ends_with('.') ? "*" : "";
    out += fmt::format("| `{}{}` | `{}{}` |\n", row.old_key, star, row.new_key, star);
  }
  return out +
         fmt::format("\n`trainer.logger` may also name `{}`: without effect.\n", fmt::join(foreign_trackers(), "`, `"));
}

}  // namespace

std::string config_markdown() {
  Config config;
  const FieldList list = list_fields(config);
  TuningConfig tuning;
  return std::string(kHead) + field_tables(list) + field_tables(list_fields(tuning), "sft and reward-model: ") +
         changed_table(list) + verl_tables();
}

}  // namespace tandem
