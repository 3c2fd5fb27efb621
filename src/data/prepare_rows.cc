#include "data/prepare_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "data/boxed.h"
#include "data/row.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::string_view kGsm8kInstruction = "Let's think step by step and output the final answer after \"####\".";
constexpr std::string_view kMathInstruction = "Let's think step by step and output the final answer within \\boxed{}.";

std::optional<std::string> text(const json& record, const char* key) {
  const json* value = find_value(record, key);
  return value && value->is_string() ? std::optional(value->get<std::string>()) : std::nullopt;
}

bool is_blank(std::string_view text) { return stripped(text).empty(); }

Unusable lacks(std::string_view column) { return {fmt::format("column '{}' is absent, empty or not text", column)}; }

// The first match of `#### (\-?[0-9\.\,]+)`, commas removed.
std::optional<std::string> gsm8k_truth(std::string_view answer) {
  constexpr std::string_view kMarker = "#### ";
  for (size_t at = answer.find(kMarker); at != answer.npos; at = answer.find(kMarker, at + 1)) {
    std::string_view rest = answer.substr(at + kMarker.size());
    const size_t sign = rest.starts_with('-') ? 1 : 0;
    const size_t end = std::min(rest.find_first_not_of("0123456789.,", sign), rest.size());
    if (end == sign) continue;
    std::string number(rest.substr(0, end));
    std::erase(number, ',');
    return number;
  }
  return std::nullopt;
}

PromptRow question_row(std::string data_source, const std::string& question, std::string_view instruction,
                       std::string truth, std::string answer) {
  PromptRow row;
  row.data_source = std::move(data_source);
  row.messages = {{"user", fmt::format("{} {}", question, instruction)}};
  row.ability = "math";
  row.ground_truth = std::move(truth);
  row.answer = std::move(answer);
  row.question = question;
  return row;
}

RowOrReason gsm8k(const json& record) {
  const auto question = text(record, "question"), answer = text(record, "answer");
  if (!question) return lacks("question");
  if (!answer) return lacks("answer");
  auto truth = gsm8k_truth(*answer);
  if (!truth) return Unusable{"its answer has no number after \"#### \""};
  return question_row("openai/gsm8k", *question, kGsm8kInstruction, std::move(*truth), *answer);
}

RowOrReason math(const json& record) {
  const auto problem = text(record, "problem");
  if (!problem || is_blank(*problem)) return lacks("problem");
  const std::string solution = text(record, "solution").value_or("");
  auto truth = text(record, "answer");
  if (!truth) truth = boxed_answer(solution);
  if (!truth || is_blank(*truth)) return Unusable{"it has no answer, and no \\boxed{} one in its solution"};
  return question_row("DigitalLearningGmbH/MATH-lighteval", *problem, kMathInstruction, *truth,
                      solution.empty() ? *truth : solution);
}

std::optional<std::string> plain_number(const json& value) {
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (!value.is_number_float() || !std::isfinite(value.get<double>())) return std::nullopt;
  const double number = value.get<double>();
  if (number == std::floor(number) && std::abs(number) < 1e15) return fmt::format("{:.0f}", number);
  return fmt::format("{}", number);
}

RowOrReason svamp(const json& record) {
  const auto body = text(record, "Body"), question = text(record, "Question");
  if (!body) return lacks("Body");
  if (!question || is_blank(*question)) return lacks("Question");
  const json* answer = find_value(record, "Answer");
  std::optional<std::string> truth = answer ? plain_number(*answer) : std::nullopt;
  if (answer && answer->is_string()) truth = answer->get<std::string>();
  if (!truth || is_blank(*truth)) return Unusable{"column 'Answer' is absent or no number"};
  const bool ends = is_blank(*body) || std::string_view(".?!,;").find(body->back()) != std::string_view::npos;
  const std::string whole = is_blank(*body) ? *question : *body + (ends ? " " : ". ") + *question;
  return question_row("ChilleD/SVAMP", whole, kGsm8kInstruction, *truth, text(record, "Equation").value_or(*truth));
}

RowOrReason countdown(const json& record) {
  const json* numbers = find_value(record, "nums");
  if (!numbers) numbers = find_value(record, "numbers");
  const json* target = find_value(record, "target");
  const auto whole = [](const json& value) { return value.is_number_integer(); };
  if (!numbers || !numbers->is_array() || numbers->empty() || !std::all_of(numbers->begin(), numbers->end(), whole))
    return Unusable{"column 'nums' is absent or no list of whole numbers"};
  if (!target || !whole(*target)) return Unusable{"column 'target' is absent or no whole number"};
  const auto values = numbers->get<std::vector<int64_t>>();
  PromptRow row;
  row.data_source = "countdown";
  row.question = fmt::format("Reach {} from the numbers [{}].", target->get<int64_t>(), fmt::join(values, ", "));
  row.messages = {
      {"user", fmt::format("{} Use each number exactly once, with +, -, *, / and parentheses. Think first, within "
                           "<think> and </think>; then give the expression alone within <answer> and </answer>, for "
                           "example <answer>(1 + 2) / 3</answer>.",
                           row.question)}};
  row.ability = "math";
  row.ground_truth = json{{"target", *target}, {"numbers", *numbers}}.dump();
  row.answer = text(record, "one_solution").value_or("");
  return row;
}

using Conversation = std::vector<Message>;

// "\n\nHuman: ...\n\nAssistant: ...": whichever marker comes next begins a turn.
Conversation parse_dialogue(std::string_view text) {
  constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";
  Conversation turns;
  size_t at = std::min(text.find(kHuman), text.find(kAssistant));
  while (at != text.npos) {
    const bool human = text.substr(at).starts_with(kHuman);
    const size_t begin = at + (human ? kHuman : kAssistant).size();
    at = std::min(text.find(kHuman, begin), text.find(kAssistant, begin));
    const std::string_view turn = text.substr(begin, at == text.npos ? text.npos : at - begin);
    turns.push_back({human ? "user" : "assistant", std::string(stripped(turn))});
  }
  return turns;
}

std::string role_name(const std::string& name) {
  if (name == "human") return "user";
  return name == "gpt" ? "assistant" : name;
}

// Messages as {role, content} or {from, value}, one or a list of them. Nothing for anything else.
std::optional<Conversation> parse_messages(const json& value) {
  const json list = value.is_object() ? json::array({value}) : value;
  if (!list.is_array() || list.empty()) return std::nullopt;
  Conversation turns;
  for (const json& message : list) {
    if (!message.is_object()) return std::nullopt;
    const auto role = text(message, message.contains("role") ? "role" : "from");
    const auto content = text(message, message.contains("content") ? "content" : "value");
    if (!role || !content) return std::nullopt;
    turns.push_back({role_name(*role), *content});
  }
  return turns;
}

// Texts in turn, the user's first; a lone text is a prompt.
std::optional<Conversation> parse_turns(const json& value) {
  if (value.is_string()) return Conversation{{"user", value.get<std::string>()}};
  if (!value.is_array() || value.empty()) return std::nullopt;
  Conversation turns;
  for (const json& turn : value) {
    if (!turn.is_string()) return std::nullopt;
    turns.push_back({turns.size() % 2 == 0 ? "user" : "assistant", turn.get<std::string>()});
  }
  return turns;
}

// Why the chat templates or a learner could not use it; empty: they can.
std::string flaw(const Conversation& turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    if (is_blank(turns[i].content)) return "a turn is empty";
    const bool system = i == 0 && turns[i].role == "system";
    if (!system && turns[i].role != "user" && turns[i].role != "assistant")
      return fmt::format("a turn is by '{}'", turns[i].role.substr(0, 40));
    if (i > 0 && turns[i].role == turns[i - 1].role) return "two turns by the same speaker follow each other";
  }
  const size_t first = !turns.empty() && turns[0].role == "system" ? 1 : 0;
  return turns.size() > first && turns[first].role == "user" ? "" : "it does not begin with the user";
}

bool same(const Message& a, const Message& b) { return a.role == b.role && a.content == b.content; }

// A reply to `prompt`, which a dialogue or list of messages may repeat. Nothing when it is not in a known form.
std::optional<Conversation> whole_dialogue(const json& reply, const Conversation& prompt) {
  Conversation turns;
  if (reply.is_string()) {
    const std::string words = reply.get<std::string>();
    turns = parse_dialogue(words);
    if (turns.empty()) turns = {{"assistant", std::string(stripped(words))}};
  } else if (auto messages = parse_messages(reply)) {
    turns = std::move(*messages);
  } else {
    return std::nullopt;
  }
  if (!turns.empty() && turns.front().role != "assistant") return turns;
  turns.insert(turns.begin(), prompt.begin(), prompt.end());
  return turns;
}

Conversation stated_prompt(const json& record) {
  for (const char* key : {"conversations", "prompt"}) {
    const json* value = find_value(record, key);
    if (!value) continue;
    if (value->is_string()) {
      Conversation turns = parse_dialogue(value->get<std::string>());
      if (!turns.empty() && turns.back().role == "assistant" && turns.back().content.empty()) turns.pop_back();
      return turns.empty() ? Conversation{{"user", value->get<std::string>()}} : turns;
    }
    return parse_messages(*value).value_or(Conversation{});
  }
  return {};
}

RowOrReason hh_rlhf(const json& record) {
  const json *chosen = find_value(record, "chosen"), *rejected = find_value(record, "rejected");
  if (!chosen || !rejected) return Unusable{"columns 'chosen' and 'rejected' are not both there"};
  const Conversation prompt = stated_prompt(record);
  const auto good = whole_dialogue(*chosen, prompt), bad = whole_dialogue(*rejected, prompt);
  if (!good || !bad) return Unusable{"'chosen' or 'rejected' is neither text nor messages"};
  for (const Conversation* turns : {&*good, &*bad}) {
    if (const std::string reason = flaw(*turns); !reason.empty()) return Unusable{reason};
    if (turns->back().role != "assistant") return Unusable{"it does not end with a reply"};
  }
  if (!std::equal(good->begin(), good->end() - 1, bad->begin(), bad->end() - 1, same))
    return Unusable{"chosen and rejected answer different prompts"};
  if (same(good->back(), bad->back())) return Unusable{"chosen and rejected are the same"};
  PromptRow row;
  row.data_source = "Anthropic/hh-rlhf";
  row.messages.assign(good->begin(), good->end() - 1);
  row.ability = "alignment";
  row.style = "model";
  row.ground_truth = row.answer = row.chosen = good->back().content;
  row.rejected = bad->back().content;
  row.question = row.messages.back().content;
  return row;
}

RowOrReason ultrachat(const json& record) {
  const json *messages = find_value(record, "messages"), *data = find_value(record, "data");
  if (!messages && !data) return Unusable{"columns 'messages' and 'data' are both absent"};
  const auto turns = messages ? parse_messages(*messages) : parse_turns(*data);
  if (!turns) return Unusable{"its dialogue is neither messages nor texts in turn"};
  if (const std::string reason = flaw(*turns); !reason.empty()) return Unusable{reason};
  PromptRow row;
  row.data_source = "HuggingFaceH4/ultrachat_200k";
  row.messages = row.conversation = *turns;
  if (turns->back().role == "assistant") {
    row.messages.pop_back();
    row.ground_truth = row.answer = turns->back().content;
  }
  row.ability = "chat";
  row.style = "model";
  row.question = row.messages.back().content;
  return row;
}

}  // namespace

const std::vector<DatasetReader>& dataset_readers() {
  static const std::vector<DatasetReader> readers = {
      {"gsm8k", "GSM8K: question, answer", {"question", "answer"}, gsm8k},
      {"math", "MATH: problem, and answer or solution", {"problem", "solution", "answer"}, math},
      {"svamp", "SVAMP: Body, Question, Answer", {"Body", "Question", "Answer", "Equation"}, svamp},
      {"countdown", "countdown puzzles: nums, target", {"nums", "numbers", "target", "one_solution"}, countdown},
      {"hh_rlhf", "preferences: chosen, rejected", {"prompt", "conversations", "chosen", "rejected"}, hh_rlhf},
      {"ultrachat", "dialogues: messages, or data", {"messages", "data"}, ultrachat},
  };
  return readers;
}

}  // namespace tandem
