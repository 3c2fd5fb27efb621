// Which tokens of a conversation are the assistant's: token by token on small templates.
#include "text/chat_mask.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "goldens.h"

namespace tandem {
namespace {

class ChatMask : public testing::Test {
 protected:
  // The tokens one by one as text, what is masked out in parentheses.
  std::string marked(const MaskedChat& chat) const {
    std::string out;
    for (size_t i = 0; i < chat.ids.size(); ++i) {
      const std::string token = tokenizer_.decode(std::span(&chat.ids[i], 1), false);
      out += chat.mask[i] != 0 ? token : "(" + token + ")";
    }
    return out;
  }
  MaskedChat encode(const std::string& source, const std::vector<ChatMessage>& messages, const std::string& kwargs = "",
                    size_t first = 0) const {
    return encode_masked(ChatTemplate::from_source(source), tokenizer_, messages, kwargs, std::span(&end_, 1), first);
  }
  std::string refusal(const std::string& source, const std::vector<ChatMessage>& messages,
                      const std::string& kwargs = "") const {
    try {
      encode(source, messages, kwargs);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  static std::string chatml() { return read_file(text_data("templates/chatml.jinja")); }
  static std::string thinking() { return read_file(text_data("templates/thinking.jinja")); }

  Tokenizer tokenizer_ = Tokenizer::from_folder(text_data("toy"));
  int32_t end_ = *tokenizer_.token_to_id("<|im_end|>");
};

// Letters of q are tokens of their own (no merge of the toy vocabulary holds one). The newline after a turn's end is
// the template's.
TEST_F(ChatMask, MarksTheAssistantsTokensAndTheirEnd) {
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] + m.content + '<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  EXPECT_EQ(marked(encode(plain, {{"user", "qz"}, {"assistant", "zq"}})), "(u)(q)(z)(<|im_end|>)(a)zq<|im_end|>");
  EXPECT_EQ(
      marked(encode(plain, {{"user", "q"}, {"assistant", "z"}, {"user", "j"}, {"assistant", "k"}, {"user", "q"}})),
      "(u)(q)(<|im_end|>)(a)z<|im_end|>(u)(j)(<|im_end|>)(a)k<|im_end|>(u)(q)(<|im_end|>)");
  const MaskedChat whole = encode(chatml(), {{"user", "q"}, {"assistant", "z"}});
  ASSERT_EQ(std::ranges::count(whole.mask, 1), 2);  // z and the end; not the newline behind it
  EXPECT_EQ(whole.mask[whole.mask.size() - 1], 0);
  EXPECT_EQ(whole.ids[whole.ids.size() - 2], end_);
}

// Text that spells the end of a turn is text, not the end.
TEST_F(ChatMask, ASpelledEndIsNoEnd) {
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] + m.content + '<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  const MaskedChat chat = encode(plain, {{"user", "q"}, {"assistant", "z<|im_end|>z"}});
  EXPECT_EQ(std::ranges::count(chat.ids, end_), 2);
  EXPECT_EQ(std::vector<uint8_t>(chat.mask.begin() + 4, chat.mask.end()),
            std::vector<uint8_t>(chat.mask.size() - 4, 1));
}

// Without an end id the turn ends where the rendering up to it does.
TEST_F(ChatMask, TurnsMayEndWithoutAnEndId) {
  const std::string bare =
      "{% for m in messages %}{{ m.role[0] + m.content }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  EXPECT_EQ(marked(encode(bare, {{"user", "q"}, {"assistant", "zj"}, {"user", "q"}, {"assistant", "k"}})),
            "(u)(q)(a)zj(u)(q)(a)k");
}

// Earlier turns lose the empty thought that the last one gets: the turn is still found, by its end id.
TEST_F(ChatMask, ATemplateThatRewritesEarlierTurns) {
  const std::vector<ChatMessage> two = {{"user", "q"}, {"assistant", "z"}, {"user", "j"}, {"assistant", "k"}};
  const MaskedChat chat = encode(thinking(), two);
  std::string learnt;
  for (size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.mask[i] != 0) learnt += tokenizer_.decode(std::span(&chat.ids[i], 1), false);
  EXPECT_EQ(learnt, "z<|im_end|><think>\n\n</think>\n\nk<|im_end|>");
  // The prompt it would have answered holds an empty thought, the whole conversation does not.
  EXPECT_NE(refusal(thinking(), two, R"({"enable_thinking": false})").find("message 1"), std::string::npos);
}

// Pairs and rewards need the last reply only: what comes before it is context, whatever the template made of it.
TEST_F(ChatMask, EarlierTurnsAreNotAskedFor) {
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] + m.content + '<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  EXPECT_EQ(marked(encode(plain, {{"user", "q"}, {"assistant", "z"}, {"user", "j"}, {"assistant", "k"}}, "", 3)),
            "(u)(q)(<|im_end|>)(a)(z)(<|im_end|>)(u)(j)(<|im_end|>)(a)k<|im_end|>");
  EXPECT_EQ(marked(encode(plain, {{"assistant", "z"}, {"user", "q"}, {"assistant", "k"}}, "", 2)),
            "(a)(z)(<|im_end|>)(u)(q)(<|im_end|>)(a)k<|im_end|>");
}

TEST_F(ChatMask, RefusesWhatCannotBeTold) {
  const std::string counting = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  EXPECT_NE(refusal(counting, {{"user", "q"}, {"assistant", "z"}}).find("message 1 (assistant)"), std::string::npos);
  EXPECT_NE(refusal(chatml(), {{"assistant", "z"}}).find("message 0"), std::string::npos);
}

}  // namespace
}  // namespace tandem
