#include "app/chat.h"

namespace tandem {

Chat::Chat(const std::filesystem::path& folder)
    : tokenizer_(Tokenizer::from_folder(folder)),
      special_(read_special_ids(folder)),
      template_(ChatTemplate::from_folder(folder)) {}

std::vector<TokenId> Chat::encode(const std::vector<Message>& messages, const std::string& template_kwargs) const {
  ChatOptions options;
  options.kwargs = template_kwargs;
  return encode_with(messages, options);
}

std::vector<TokenId> Chat::encode_finished(const std::vector<Message>& messages) const {
  ChatOptions options;
  options.add_generation_prompt = false;
  return encode_with(messages, options);
}

std::vector<TokenId> Chat::encode_with(const std::vector<Message>& messages, const ChatOptions& options) const {
  std::vector<ChatMessage> chat;
  for (const Message& message : messages) chat.push_back({message.role, message.content});
  return template_.encode_chat(tokenizer_, chat, options);
}

}  // namespace tandem
