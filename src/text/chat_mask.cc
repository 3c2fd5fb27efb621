#include "text/chat_mask.h"

#include <algorithm>

#include "base/error.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;

bool begins_with(const Ids& whole, const Ids& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

MaskedChat encode_masked(const ChatTemplate& chat, const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                         const std::string& kwargs, std::span<const int32_t> end_ids, size_t first) {
  ChatOptions open, closed;
  open.kwargs = closed.kwargs = kwargs;
  closed.add_generation_prompt = false;
  MaskedChat out;
  out.ids = chat.encode_chat(tokenizer, messages, closed);
  out.mask.assign(out.ids.size(), 0);
  const auto is_end = [&](int32_t id) { return std::ranges::find(end_ids, id) != end_ids.end(); };
  for (size_t i = first; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const auto refuse = [&](const std::string& why) {
      throw DataError("message " + std::to_string(i) + " (assistant): " + why);
    };
    if (i == 0) refuse("nothing comes before it; a conversation begins with the user or the system");
    const Ids before = chat.encode_chat(tokenizer, messages.first(i), open);
    if (!begins_with(out.ids, before))
      refuse(
          "the chat template renders what comes before it otherwise alone than in the whole conversation, so its "
          "tokens cannot be told from the others; train on single turns, or use another template");
    const auto begin = out.ids.begin() + static_cast<std::ptrdiff_t>(before.size());
    auto end = std::find_if(begin, out.ids.end(), is_end);
    if (end != out.ids.end()) {
      ++end;
    } else {
      const Ids through = chat.encode_chat(tokenizer, messages.first(i + 1), closed);
      if (through.size() <= before.size() || !begins_with(out.ids, through))
        refuse(
            "the chat template renders it otherwise at the end than within the whole conversation; give the model "
            "an end-of-text id that closes a turn");
      end = out.ids.begin() + static_cast<std::ptrdiff_t>(through.size());
    }
    std::fill(out.mask.begin() + (begin - out.ids.begin()), out.mask.begin() + (end - out.ids.begin()), 1);
  }
  return out;
}

}  // namespace tandem
