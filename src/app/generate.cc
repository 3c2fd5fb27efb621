// tandem generate: a chat in the terminal, or answers to a file of prompts.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/chat.h"
#include "app/command.h"
#include "app/lora_options.h"
#include "app/options.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "kernels/device_ops.h"

namespace tandem {
namespace {

struct GenerateArguments {
  std::string model, adapter, file, system, device = "auto";
  SamplingParams sampling;
  int64_t num_samples = 1, max_model_len = 2048, kv_cache_mb = 1024, threads = 0;
};

class Session {
 public:
  // `num_chats`: how many are answered at once, at most; the cache is made no larger than they can use.
  Session(const GenerateArguments& a, size_t num_chats)
      : arguments_(a), folder_(resolve_model(a.model)), chat_(folder_) {
    const int64_t longest = std::min(a.max_model_len, load_model_config(folder_).max_position_embeddings);
    decoder_ = load_decoder(folder_, longest, kernels::choose_device(a.device), false, given_adapter(a.adapter));
    options_.max_model_len = longest;
    options_.num_drawable = std::min<int64_t>(decoder_->config().vocab_size, chat_.tokenizer().vocab_size());
    const int64_t at_once = std::min(options_.scheduler.max_num_seqs, static_cast<int64_t>(num_chats) * a.num_samples);
    const int64_t useful = at_once * ((longest + kernels::kKvBlock - 1) / kernels::kKvBlock);
    options_.num_blocks =
        plan_kv_blocks(decoder_->config(), a.kv_cache_mb << 20, longest, useful, decoder_->value_bytes());
    arguments_.sampling.eos_ids = chat_.special().eos;
  }

  // `on_finish` gets each response with its text; pieces go to `on_text` as they come.
  void answer(const std::vector<std::vector<Message>>& chats, const TextCallback& on_text,
              const FinishCallback& on_finish) {
    Generator generator(*decoder_, options_, &chat_.tokenizer(), on_finish);
    for (const auto& messages : chats) {
      auto prompt = std::make_shared<Prompt>();
      prompt->id = next_id_++;
      prompt->token_ids = chat_.encode(messages, "{}");
      generator.add(std::make_shared<GenerationRequest>(
          GenerationRequest{prompt, arguments_.sampling, static_cast<uint32_t>(arguments_.num_samples), 0,
                            on_text ? on_text : [](uint32_t, std::string_view) {}}));
    }
    generator.run();
  }

 private:
  GenerateArguments arguments_;
  std::filesystem::path folder_;
  Chat chat_;
  std::unique_ptr<Decoder> decoder_;
  GeneratorOptions options_;
  uint64_t next_id_ = 0;
};

std::vector<Message> opening(const std::string& system) {
  return system.empty() ? std::vector<Message>{} : std::vector<Message>{{"system", system}};
}

int chat_in_terminal(const GenerateArguments& a) {
  Session session(a, 1);
  std::vector<Message> messages = opening(a.system);
  const bool terminal = ::isatty(0) == 1;
  if (terminal) print_line("Ask away. /new starts over, Ctrl-D ends.");
  std::string line;
  for (;;) {
    if (terminal) std::fputs("> ", stdout), std::fflush(stdout);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line == "/new") {
      messages = opening(a.system);
      continue;
    }
    messages.push_back({"user", line});
    std::string reply;
    session.answer(
        {messages},
        [](uint32_t, std::string_view piece) {
          std::fwrite(piece.data(), 1, piece.size(), stdout), std::fflush(stdout);
        },
        [&](TrajectoryPtr, const std::string& text) { reply = text; });
    std::puts("");
    messages.push_back({"assistant", reply});
  }
  return 0;
}

Message message_of(const nlohmann::json& message, const std::string& file, size_t line) {
  for (const char* key : {"role", "content"})
    if (!message.is_object() || !message.contains(key) || !message[key].is_string())
      throw DataError(fmt::format("{} line {}: each message needs text for role and content", file, line));
  return {message["role"], message["content"]};
}

std::vector<std::vector<Message>> read_prompts(const std::string& file, const std::string& system) {
  std::ifstream in(file);
  if (!in) throw IoError("cannot open " + file + R"(; give a jsonl file of {"prompt": "..."} or {"messages": [...]})");
  std::vector<std::vector<Message>> chats;
  std::string text;
  for (size_t line = 1; std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto row = nlohmann::json::parse(text, nullptr, false);
    std::vector<Message> messages = opening(system);
    const auto* list = row.is_object() && row.contains("messages") ? &row["messages"]
                       : row.is_object() && row.contains("prompt") ? &row["prompt"]
                                                                   : nullptr;
    if (list == nullptr || !(list->is_string() || list->is_array()))
      throw DataError(
          fmt::format("{} line {}: expected {{\"prompt\": text or messages}} or {{\"messages\": [...]}}", file, line));
    if (list->is_string()) messages.push_back({"user", *list});
    if (list->is_array())
      for (const auto& message : *list) messages.push_back(message_of(message, file, line));
    chats.push_back(std::move(messages));
  }
  return chats;
}

int answer_file(const GenerateArguments& a) {
  const auto chats = read_prompts(a.file, a.system);
  Session session(a, chats.size());
  session.answer(chats, {}, [](TrajectoryPtr t, const std::string& text) {
    nlohmann::ordered_json out;
    out["prompt"] = t->prompt->id;
    out["sample"] = t->sample_index;
    out["response"] = text;
    out["finish_reason"] = to_string(t->stop_reason);
    out["response_ids"] = t->response_ids;
    out["logprobs"] = t->rollout_logprobs;
    print_line(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  });
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("generate", "chat with a model in the terminal, or answer a file of prompts");
  auto a = std::make_shared<GenerateArguments>();
  a->sampling.temperature = 0.7;
  command->add_option("model", a->model, "model folder")->required();
  command->add_option("file", a->file, R"(jsonl of {"prompt": "..."} or {"messages": [...]}; none: chat)");
  command->add_option("--adapter", a->adapter, "folder of a LoRA adapter, or a global_step_N that holds one");
  command->add_option("--system", a->system, "system message");
  command->add_option("-n,--num-samples", a->num_samples, "responses a prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--temperature", a->sampling.temperature, "0: the likeliest token")->capture_default_str();
  command->add_option("--top-k", a->sampling.top_k, "-1: all")->capture_default_str();
  command->add_option("--top-p", a->sampling.top_p)->capture_default_str();
  command->add_option("--min-p", a->sampling.min_p)->capture_default_str();
  command->add_option("--max-tokens", a->sampling.max_tokens)->capture_default_str();
  command->add_option("--min-tokens", a->sampling.min_tokens)->capture_default_str();
  command->add_option("--stop", a->sampling.stop, "text that ends a response; may be given again")
      ->allow_extra_args(false);
  command->add_option("--stop-token-ids", a->sampling.stop_token_ids, "ids that end a response")->delimiter(',');
  command->add_flag("--ignore-eos", a->sampling.ignore_eos, "go on past the end token");
  command->add_option("--seed", a->sampling.seed)->capture_default_str();
  command->add_option("--max-model-len", a->max_model_len, "prompt and response together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--kv-cache-mb", a->kv_cache_mb, "at most; no more is taken than is of use")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--device", a->device, "auto: a GPU if there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--threads", a->threads, "0: one a core")->check(CLI::Range(0, 4096))->capture_default_str();
  command->callback([&action, a] {
    action = [a] {
      validate(a->sampling);
      set_num_threads(a->threads);
      return a->file.empty() ? chat_in_terminal(*a) : answer_file(*a);
    };
  });
}

}  // namespace tandem
