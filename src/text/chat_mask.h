// A whole conversation as tokens, and which of them the assistant wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/chat_template.h"

namespace tandem {

struct MaskedChat {
  std::vector<int32_t> ids;   // the template's rendering of the whole, without the start of another answer
  std::vector<uint8_t> mask;  // 1: the assistant's
};

// An assistant's turn begins where the rendering of what came before it, generation prompt included, ends: DataError
// where those tokens are not the first ones of the whole, so that the model would learn from another context than the
// one it answers in. It ends with the end-of-text id (one of `end_ids`) that closes it, which is learnt too; what the
// template writes after that is not the assistant's. Without such an id it ends where the rendering up to this message
// does. Of messages before `first` nothing is marked, nor asked: they are context. `kwargs` as in ChatOptions.
MaskedChat encode_masked(const ChatTemplate& chat, const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                         const std::string& kwargs, std::span<const int32_t> end_ids, size_t first = 0);

}  // namespace tandem
