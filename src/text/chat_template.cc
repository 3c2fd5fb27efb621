#include "text/chat_template.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "text/control_guard.h"
#include "text/shim.h"
#include "text/utf8.h"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 100;

ordered_json parse_json(std::string_view text, std::string_view what) {
  const auto limit_depth = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
    if (depth > kMaxDepth) throw DataError("the " + std::string(what) + " are nested deeper than 100 levels");
    return true;
  };
  try {
    return ordered_json::parse(to_valid_utf8(text), limit_depth);
  } catch (const ordered_json::exception& error) {
    throw DataError("the " + std::string(what) + " are not valid JSON: " + error.what());
  }
}

ordered_json parse_list(std::string_view text, std::string_view what) {
  ordered_json value = parse_json(text, what);
  if (!value.is_array()) throw DataError("the " + std::string(what) + " must be a JSON list");
  return value;
}

ordered_json to_json(std::span<const ChatMessage> messages) {
  ordered_json list = ordered_json::array();
  for (const ChatMessage& message : messages)
    list.push_back({{"role", to_valid_utf8(message.role)}, {"content", to_valid_utf8(message.content)}});
  return list;
}

// What transformers 5 does to a message first: keys without a value go, and reasoning stands under both of its names.
ordered_json normalised(const ordered_json& message) {
  ordered_json result = ordered_json::object(), reasoning;
  for (const char* name : {"reasoning", "thinking", "reasoning_content"})  // the last has precedence
    if (message.contains(name) && !message.at(name).is_null()) reasoning = message.at(name);
  if (!reasoning.is_null()) result["thinking"] = reasoning;
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) result[key] = value;
  if (!reasoning.is_null()) result["reasoning_content"] = reasoning;
  return result;
}

ordered_json parse_messages(std::string_view text) {
  ordered_json messages = parse_list(text, "messages");
  for (ordered_json& message : messages) {
    if (!message.is_object()) throw DataError("each of the messages must be a JSON object with role and content");
    message = normalised(message);
  }
  return messages;
}

// What the user supplies: the template's variables but for the special tokens.
ordered_json variables_of(ordered_json messages, const ChatOptions& options) {
  ordered_json variables = {{"messages", std::move(messages)}};
  variables["tools"] = options.tools.empty() ? ordered_json() : parse_list(options.tools, "tools");
  variables["documents"] = options.documents.empty() ? ordered_json() : parse_list(options.documents, "documents");
  variables["add_generation_prompt"] = options.add_generation_prompt;
  if (options.kwargs.empty()) return variables;
  const ordered_json more = parse_json(options.kwargs, "template's kwargs");
  if (!more.is_object()) throw DataError("the template's kwargs must be a JSON object");
  for (const auto& [key, value] : more.items()) variables[key] = value;
  return variables;
}

// "<s>" or {"content": "<s>", ...}
std::optional<std::string> token_text(const ordered_json& value) {
  const ordered_json& text = value.is_object() && value.contains("content") ? value.at("content") : value;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

ordered_json read_object(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return ordered_json::object();
  ordered_json value = ordered_json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) throw IoError(path.string() + " is not a JSON object");
  return value;
}

ordered_json special_tokens_of(const std::filesystem::path& folder) {
  ordered_json tokens = ordered_json::object();
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const ordered_json config = read_object(folder / file);
    for (const auto& [key, value] : config.items())
      if (key.ends_with("_token"))
        if (const auto text = token_text(value)) tokens[key] = *text;
  }
  return tokens;
}

}  // namespace

struct ChatTemplate::Named {
  struct Entry {
    std::string name, source;
    std::shared_ptr<const TtTemplate> handle;
  };
  std::string origin;  // for errors
  std::vector<Entry> entries;
  ordered_json special_tokens;

  void add(std::string name, std::string source) {
    source = to_valid_utf8(source);
    TtTemplate* handle = tt_template_new(shim_bytes(source), source.size());
    if (handle == nullptr) throw DataError(origin + ": " + tt_last_error());
    entries.push_back({std::move(name), std::move(source), {handle, tt_template_free}});
  }

  const Entry& choose(bool has_tools) const {
    if (entries.size() == 1) return entries[0];
    for (const char* wanted : {has_tools ? "tool_use" : "default", "default"})
      for (const Entry& entry : entries)
        if (entry.name == wanted) return entry;
    throw DataError(origin + ": several chat templates, none of them named 'default'");
  }

  std::string render(const ordered_json& variables) const {
    ordered_json all = special_tokens;
    for (const auto& [key, value] : variables.items()) all[key] = value;
    const std::string text = all.dump();
    ShimText rendered;
    const Entry& entry = choose(!variables.at("tools").is_null());
    if (tt_template_render(entry.handle.get(), shim_bytes(text), text.size(), rendered.out()) != 0)
      throw DataError(origin + ": " + tt_last_error());
    return rendered.str();
  }

  std::vector<int32_t> encode(const Tokenizer& tokenizer, ordered_json variables, bool parse_controls) const {
    const std::string expected = render(variables);
    if (parse_controls) return tokenizer.encode(expected);
    ControlGuard guard(tokenizer);
    const std::string& source = choose(!variables.at("tools").is_null()).source;
    if (!guard.mark(variables, source + special_tokens.dump())) return tokenizer.encode(expected);
    const ControlGuard::Restored restored = guard.restore(render(variables));
    if (restored.text != expected)
      throw DataError(origin +
                      ": a message spells a control token, and the template alters or looks for that spelling; "
                      "remove it from the message, or tokenise with parse_controls_in_messages");
    return tokenizer.encode_with_controls(restored.text, restored.controls);
  }
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Named> templates) : templates_(std::move(templates)) {}

ChatTemplate ChatTemplate::from_folder(const std::filesystem::path& folder) {
  auto templates = std::make_shared<Named>();
  templates->special_tokens = special_tokens_of(folder);
  const std::filesystem::path own_file = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(own_file)) {
    templates->origin = own_file.string();
    templates->add("default", read_file(own_file));
    return ChatTemplate(std::move(templates));
  }
  const ordered_json content = read_object(config).value("chat_template", ordered_json());
  templates->origin = config.string() + ", chat_template";
  if (content.is_string()) templates->add("default", content.get<std::string>());
  if (content.is_array())
    for (const ordered_json& item : content) {
      if (!item.is_object() || !item.contains("name") || !item.contains("template") || !item["name"].is_string() ||
          !item["template"].is_string())
        throw IoError(templates->origin + ": each named template needs the texts 'name' and 'template'");
      templates->add(item["name"].get<std::string>(), item["template"].get<std::string>());
    }
  if (templates->entries.empty())
    throw IoError("no chat template in " + folder.string() +
                  ": neither chat_template.jinja nor chat_template in "
                  "tokenizer_config.json");
  return ChatTemplate(std::move(templates));
}

ChatTemplate ChatTemplate::from_source(std::string_view source,
                                       const std::map<std::string, std::string>& special_tokens) {
  auto templates = std::make_shared<Named>();
  templates->origin = "chat template";
  templates->special_tokens = ordered_json::object();
  for (const auto& [name, text] : special_tokens) templates->special_tokens[name] = to_valid_utf8(text);
  templates->add("default", std::string(source));
  return ChatTemplate(std::move(templates));
}

std::string ChatTemplate::render(std::string_view messages, const ChatOptions& options) const {
  return templates_->render(variables_of(parse_messages(messages), options));
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
  return templates_->render(variables_of(to_json(messages), options));
}

std::vector<int32_t> ChatTemplate::encode_chat(const Tokenizer& tokenizer, std::string_view messages,
                                               const ChatOptions& options) const {
  return templates_->encode(tokenizer, variables_of(parse_messages(messages), options),
                            options.parse_controls_in_messages);
}

std::vector<int32_t> ChatTemplate::encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                               const ChatOptions& options) const {
  return templates_->encode(tokenizer, variables_of(to_json(messages), options), options.parse_controls_in_messages);
}

}  // namespace tandem
