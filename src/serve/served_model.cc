#include "serve/served_model.h"

#include <fmt/format.h>

#include <ctime>

#include "base/log.h"
#include "serve/api_error.h"

namespace tandem {
namespace {

std::optional<ChatTemplate> template_of(const std::filesystem::path& folder) {
  try {
    return ChatTemplate::from_folder(folder);
  } catch (const IoError& error) {
    log_warn(fmt::format("chats are not answered: {}", error.what()));
    return std::nullopt;
  }
}

}  // namespace

ServedModel::ServedModel(std::filesystem::path folder, std::string name, int64_t max_model_len, int64_t vocab_size)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      tokenizer_(Tokenizer::from_folder(folder_)),
      special_(read_special_ids(folder_)),
      template_(template_of(folder_)),
      max_model_len_(max_model_len),
      vocab_size_(vocab_size),
      started_(static_cast<int64_t>(std::time(nullptr))) {}

const ChatTemplate& ServedModel::chat_template() const {
  if (!template_) throw ApiError(400, "this model has no chat template; use /v1/completions", "messages");
  return *template_;
}

std::vector<TokenId> ServedModel::encode(const ChatRequest& request) const {
  ChatOptions options;
  options.add_generation_prompt = request.add_generation_prompt;
  options.kwargs = request.template_kwargs;
  if (!request.tools.empty()) {
    const std::string without = chat_template().render(request.messages, options);
    options.tools = request.tools;
    if (chat_template().render(request.messages, options) == without)
      throw ApiError(400, "this model's chat template has no place for tools; leave them out", "tools");
  }
  return chat_template().encode_chat(tokenizer_, request.messages, options);
}

void ServedModel::check_name(const std::string& name) const {
  if (!name.empty() && name != name_)
    throw ApiError(404,
                   fmt::format("there is no model '{}' here; this server answers as '{}'", name.substr(0, 100), name_),
                   "model");
}

}  // namespace tandem
