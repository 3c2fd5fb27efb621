// The model that a server answers with, as requests see it. Immutable, safe from many threads.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "serve/openai_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

class ServedModel {
 public:
  // A folder without a chat template serves all but chats.
  ServedModel(std::filesystem::path folder, std::string name, int64_t max_model_len, int64_t vocab_size);

  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const SpecialIds& special() const { return special_; }
  int64_t max_model_len() const { return max_model_len_; }
  int64_t vocab_size() const { return vocab_size_; }
  int64_t started() const { return started_; }  // seconds since 1970

  // ApiError 400 where the folder has no chat template.
  const ChatTemplate& chat_template() const;
  std::vector<TokenId> encode(const ChatRequest& request) const;
  // ApiError 404 where a request names another model. An empty name is ours.
  void check_name(const std::string& name) const;

 private:
  std::filesystem::path folder_;
  std::string name_;
  Tokenizer tokenizer_;
  SpecialIds special_;
  std::optional<ChatTemplate> template_;
  int64_t max_model_len_, vocab_size_, started_;
};

}  // namespace tandem
