// A model folder's tokenizer, end ids and chat template together.
#pragma once

#include <filesystem>
#include <string>

#include "data/dataset.h"
#include "text/chat_mask.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

class Chat {
 public:
  explicit Chat(const std::filesystem::path& model_folder);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const SpecialIds& special() const { return special_; }
  // Safe to call from many threads. `template_kwargs`: a JSON object of template variables.
  std::vector<TokenId> encode(const std::vector<Message>& messages, const std::string& template_kwargs) const;
  // A whole conversation, without the start of another answer.
  std::vector<TokenId> encode_finished(const std::vector<Message>& messages) const;
  // The same, and which of its tokens the assistant wrote; of messages before `first` none are marked.
  MaskedChat encode_masked(const std::vector<Message>& messages, const std::string& template_kwargs,
                           size_t first = 0) const;

 private:
  std::vector<TokenId> encode_with(const std::vector<Message>& messages, const ChatOptions& options) const;

  Tokenizer tokenizer_;
  SpecialIds special_;
  ChatTemplate template_;
};

}  // namespace tandem
