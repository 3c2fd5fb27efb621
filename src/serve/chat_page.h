// The chat page: serve/chat_page.html, put into the program when it is built (chat_page.cc.in).
#pragma once

#include <string_view>

namespace tandem {

extern const std::string_view kChatPage;

}  // namespace tandem
