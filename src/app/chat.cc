#include "app/chat.h"

namespace tandem {
namespace {

std::vector<ChatMessage> chat_messages(const std::vector<Message>& messages) {
  std::vector<ChatMessage> chat;
  for (const Message& message : messages) chat.push_back({message.role, message.content});
  return chat;
}

}  // namespace

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

MaskedChat Chat::encode_masked(const std::vector<Message>& messages, const std::string& template_kwargs,
                               size_t first) const {
  return tandem::encode_masked(template_, tokenizer_, chat_messages(messages), template_kwargs, special_.eos, first);
}

std::vector<TokenId> Chat::encode_with(const std::vector<Message>& messages, const ChatOptions& options) const {
  const std::vector<ChatMessage> chat = chat_messages(messages);
  return template_.encode_chat(tokenizer_, chat, options);
}

}  // namespace tandem
