#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "goldens.h"

namespace tandem {
namespace {

using Ids = std::vector<int32_t>;

ChatOptions options_of(const nlohmann::ordered_json& row) {
  ChatOptions options;
  options.add_generation_prompt = row.value("add_generation_prompt", false);
  if (row.contains("tools")) options.tools = row.at("tools").dump();
  if (row.contains("kwargs")) options.kwargs = row.at("kwargs").dump();
  return options;
}

void expect_render(const ChatTemplate& chat, const Tokenizer& tokenizer, const nlohmann::ordered_json& row) {
  SCOPED_TRACE(row.dump());
  const std::string messages = row.at("messages");
  if (row.contains("error")) {
    EXPECT_THROW(chat.render(messages, options_of(row)), DataError);
    return;
  }
  const std::string rendered = row.at("rendered");
  EXPECT_EQ(chat.render(messages, options_of(row)), rendered);
  EXPECT_EQ(chat.encode_chat(tokenizer, messages, options_of(row)), tokenizer.encode(rendered));
}

TEST(ChatTemplate, RendersAsTransformersDoes) {
  const Tokenizer tokenizer = Tokenizer::from_folder(text_data("toy"));
  const auto rows = read_goldens("toy.json").at("renders");
  ASSERT_GT(rows.size(), 140u);
  for (const auto& row : rows) {
    const std::string source = read_file(text_data("templates/" + row.at("template").get<std::string>() + ".jinja"));
    expect_render(ChatTemplate::from_source(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}), tokenizer, row);
  }
}

TEST(ChatTemplate, RendersTheDemoModelsTemplate) {
  if (!std::filesystem::exists(demo_model())) GTEST_SKIP() << "no demo model in " << demo_model();
  const Tokenizer tokenizer = Tokenizer::from_folder(demo_model());
  const ChatTemplate chat = ChatTemplate::from_folder(demo_model());
  for (const auto& row : read_goldens("smollm2.json").at("renders")) expect_render(chat, tokenizer, row);
}

std::string render(std::string_view source, const ChatOptions& options = {}) {
  return ChatTemplate::from_source(source).render(R"([{"role": "user", "content": "hi"}])", options);
}

std::string error_of(std::string_view source) {
  try {
    render(source);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('roles must alternate') }}"),
            "chat template: line 2: roles must alternate");
  EXPECT_NE(error_of("a\n\n{% if %}").find("chat template: line 3: syntax error"), std::string::npos);
  EXPECT_NE(error_of("a\n{{ messages[0].missing.deeper }}").find("line 2: undefined value"), std::string::npos);
  EXPECT_NE(error_of("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}").find("fuel"),
            std::string::npos);
}

TEST(ChatTemplate, BrokenMessagesAreDataErrors) {
  const ChatTemplate chat = ChatTemplate::from_source("{{ messages }}");
  EXPECT_THROW(chat.render("[{"), DataError);
  EXPECT_THROW(chat.render("{}"), DataError);
  EXPECT_THROW(chat.render("[3]"), DataError);
  EXPECT_THROW(chat.render(std::string(200, '[') + std::string(200, ']')), DataError);
  EXPECT_THROW(chat.render("[]", {.tools = "{}"}), DataError);
  EXPECT_THROW(chat.render("[]", {.kwargs = "[]"}), DataError);
}

TEST(ChatTemplate, VariablesAreThoseOfTransformers) {
  EXPECT_EQ(render("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ x is defined }}"),
            "True True True False");
  EXPECT_EQ(render("{{ documents[0].title }}{{ x }}", {.documents = R"([{"title": "T"}])", .kwargs = R"({"x": 5})"}),
            "T5");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}"), "4");
  EXPECT_EQ(render("a\n{% generation %}\nb\n{%- endgeneration -%}\n c"), "a\nbc");
}

TEST(ChatTemplate, BrokenUtf8InAMessageIsReplaced) {
  const std::vector<ChatMessage> messages = {{"user", "a\xFF"}};
  EXPECT_EQ(ChatTemplate::from_source("{{ messages[0].content }}").render(messages), "a\xEF\xBF\xBD");
}

class ChatFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "chat_template" /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  std::string render(const ChatOptions& options = {}) const {
    return ChatTemplate::from_folder(folder_).render("[]", options);
  }
  std::filesystem::path folder_;
};

TEST_F(ChatFolder, OwnFileComesFirst) {
  EXPECT_THROW(render(), IoError);
  write_file_atomic(folder_ / "tokenizer_config.json",
                    R"({"chat_template": "config", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(render(), "config");
  write_file_atomic(folder_ / "chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(render(), "file <s>");
}

TEST_F(ChatFolder, NamedTemplatesAreChosenByTools) {
  write_file_atomic(folder_ / "tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
                    {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]})");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render({.tools = "[]"}), "tools");
}

}  // namespace
}  // namespace tandem
