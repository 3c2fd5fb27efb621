// tandem logprobs: what the model thinks of given token ids or chats.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/chat.h"
#include "app/command.h"
#include "app/lora_options.h"
#include "app/options.h"
#include "app/teacher_forcing.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "kernels/device_ops.h"
#include "train/trainer.h"

namespace tandem {
namespace {

struct LogprobsArguments {
  std::string model, adapter, file, path = "train", device = "auto";
  double temperature = 1.0;
  int64_t threads = 0;
};

[[noreturn]] void refuse_line(const std::string& file, size_t line, const std::string& why) {
  throw DataError(fmt::format("{} line {}: {}", file, line, why));
}

std::vector<TokenId> ids_of(const nlohmann::json& ids, const std::string& file, size_t line) {
  std::vector<TokenId> out;
  for (const auto& id : ids) {
    if (!id.is_number_integer()) refuse_line(file, line, "input_ids must be whole numbers, not " + id.dump());
    const auto value = id.get<int64_t>();
    if (!std::in_range<TokenId>(value)) refuse_line(file, line, "no vocabulary has an id " + id.dump());
    out.push_back(static_cast<TokenId>(value));
  }
  return out;
}

std::vector<Message> messages_of(const nlohmann::json& list, const std::string& file, size_t line) {
  std::vector<Message> out;
  for (const auto& message : list) {
    if (!message.is_object() || !message.contains("role") || !message.contains("content") ||
        !message["role"].is_string() || !message["content"].is_string())
      refuse_line(file, line, "each message needs text for role and content");
    out.push_back({message["role"], message["content"]});
  }
  return out;
}

std::vector<std::vector<TokenId>> read_sequences(const std::string& file, const std::filesystem::path& model) {
  std::ifstream in(file);
  if (!in) throw IoError("cannot open " + file + "; give a jsonl file");
  std::unique_ptr<Chat> chat;
  std::vector<std::vector<TokenId>> all;
  std::string text;
  for (size_t line = 1; std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto row = nlohmann::json::parse(text, nullptr, false);
    if (row.is_object() && row.contains("input_ids") && row["input_ids"].is_array()) {
      all.push_back(ids_of(row["input_ids"], file, line));
    } else if (row.is_object() && row.contains("messages") && row["messages"].is_array()) {
      if (!chat) chat = std::make_unique<Chat>(model);
      all.push_back(chat->encode_finished(messages_of(row["messages"], file, line)));
    } else {
      refuse_line(file, line, R"(expected {"input_ids": [...]} or {"messages": [...]})");
    }
  }
  return all;
}

void check_ids(const std::vector<std::vector<TokenId>>& sequences, int64_t vocab, const std::string& file) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].empty()) throw DataError(fmt::format("{}: row {} has no tokens", file, i));
    for (const TokenId id : sequences[i])
      if (id < 0 || id >= vocab)
        throw DataError(fmt::format("{}: row {} holds id {}, the model's are 0 to {}", file, i, id, vocab - 1));
  }
}

std::string line_of(const std::vector<float>& logprobs) {
  std::string text = R"({"logprobs": [)";
  for (size_t i = 0; i < logprobs.size(); ++i) text += (i > 0 ? ", " : "") + fmt::format("{}", logprobs[i]);
  return text + "]}";
}

int logprobs(const LogprobsArguments& arguments) {
  set_num_threads(arguments.threads);
  if (!(arguments.temperature >= 1e-6 && std::isfinite(arguments.temperature)))
    throw ConfigError("--temperature must be a finite number, at least 1e-6");
  const std::filesystem::path model = resolve_model(arguments.model);
  const auto sequences = read_sequences(arguments.file, model);
  int64_t longest = 1;
  for (const auto& ids : sequences) longest = std::max(longest, static_cast<int64_t>(ids.size()));
  const auto decoder =
      load_decoder(model, longest, kernels::choose_device(arguments.device), false, given_adapter(arguments.adapter));
  check_ids(sequences, decoder->config().vocab_size, arguments.file);
  const auto all = arguments.path == "rollout" ? rollout_logprobs(*decoder, sequences, arguments.temperature)
                                               : training_logprobs(*decoder, sequences, arguments.temperature);
  for (const auto& values : all) print_line(line_of(values));
  return 0;
}

}  // namespace

void add_logprobs(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand(
      "logprobs",
      "log-probs of the second and later tokens of each line\n\n"
      R"(FILE is jsonl: {"input_ids": [1, 2, 3]}, or {"messages": [{"role": "user", "content": "hi"}]}.)"
      "\n"
      R"(Each line gives {"logprobs": [...]}, one fewer than tokens, in decimals that read back exactly.)");
  auto arguments = std::make_shared<LogprobsArguments>();
  command->add_option("model", arguments->model, "model folder")->required();
  command->add_option("file", arguments->file, "jsonl file")->required();
  command->add_option("--adapter", arguments->adapter, "folder of a LoRA adapter, or a global_step_N that holds one");
  command->add_option("--path", arguments->path, "which pass computes them; both give the same bits")
      ->check(CLI::IsMember({"train", "rollout"}))
      ->capture_default_str();
  command->add_option("--temperature", arguments->temperature, "softmax temperature")->capture_default_str();
  command->add_option("--device", arguments->device, "auto: a GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "threads; 0: one a core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->callback([&action, arguments] { action = [arguments] { return logprobs(*arguments); }; });
}

}  // namespace tandem
