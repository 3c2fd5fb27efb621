// Chat templates as transformers' apply_chat_template renders them: Jinja (minijinja, shims/tokenizers) with its
// environment: trim_blocks, lstrip_blocks, loop controls, tojson, strftime_now, raise_exception, {% generation %}, and
// values printed as Python prints them. As in transformers 5, keys of a message without a value (null) are dropped, and
// its reasoning can be read as reasoning_content or thinking.
//
// Safe by default: encode_chat() gives control ids (see tokenizer.h) only where the template itself spells them. A
// user, tool or data set that writes "<|im_end|>" gets the text "<|im_end|>".
//
// Const methods are safe from many threads. Errors are DataError: one line, naming the template's line.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

struct TtTemplate;  // the shim's

namespace tandem {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string tools;      // a JSON list of tool schemas; empty: none
  std::string documents;  // a JSON list; empty: none
  std::string kwargs;     // a JSON object of more template variables, e.g. {"enable_thinking": false}; empty: none
  // Tokenise the rendered string as it is, so that control-token spellings in the messages become control ids. Only for
  // text that is trusted, e.g. to reproduce another system's ids.
  bool parse_controls_in_messages = false;
};

class ChatTemplate {
 public:
  // chat_template.jinja, or chat_template of tokenizer_config.json (a string, or a list of named templates, of which
  // "tool_use" serves when there are tools and "default" otherwise); the special tokens come from
  // tokenizer_config.json. IoError naming the folder when there is none.
  static ChatTemplate from_folder(const std::filesystem::path& folder);
  // `special_tokens`: {"bos_token", "<s>"}, {"eos_token", "</s>"} ...: variables of the template.
  static ChatTemplate from_source(std::string_view source,
                                  const std::map<std::string, std::string>& special_tokens = {});

  // `messages`: a JSON list of objects as transformers takes it.
  std::string render(std::string_view messages, const ChatOptions& options = {}) const;
  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;

  // The ids of the rendered string; see "Safe by default". Without control-token spellings in the messages, tools,
  // documents and kwargs they are tokenizer.encode(render(...)), id for id. A template that looks for or alters such a
  // spelling inside a message is a DataError.
  std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view messages,
                                   const ChatOptions& options = {}) const;
  std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;

 private:
  struct Named;
  explicit ChatTemplate(std::shared_ptr<const Named> templates);
  std::shared_ptr<const Named> templates_;
};

}  // namespace tandem
