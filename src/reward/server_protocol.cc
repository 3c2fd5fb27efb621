#include "reward/server_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr size_t kMaxSearchedBytes = size_t{64} << 10;

constexpr std::array<std::pair<std::string_view, ServerApi>, 5> kPaths = {{
    {"/generate", ServerApi::kGenerate},
    {"/classify", ServerApi::kClassify},
    {"/score", ServerApi::kScore},
    {"/pooling", ServerApi::kPooling},
    {"/v1/chat/completions", ServerApi::kChat},
}};

bool replies_in_text(ServerApi api) { return api == ServerApi::kGenerate || api == ServerApi::kChat; }

// A lone message is its content; a conversation is told by roles.
std::string prompt_text(const std::vector<Message>& messages) {
  if (messages.size() == 1) return messages.front().content;
  std::string text;
  for (const Message& message : messages) {
    if (!text.empty()) text += "\n\n";
    text += message.role + ": " + message.content;
  }
  return text;
}

// In one pass, so that a response that holds "{ground_truth}" is not filled in.
std::string filled(std::string_view pattern, const RewardRequest& request) {
  const std::array<std::pair<std::string_view, std::string>, 4> values = {{
      {"{prompt}", prompt_text(request.messages)},
      {"{response}", request.solution_str},
      {"{ground_truth}", request.ground_truth},
      {"{data_source}", request.data_source},
  }};
  std::string result;
  while (!pattern.empty()) {
    const auto* found =
        std::find_if(values.begin(), values.end(), [&](const auto& value) { return pattern.starts_with(value.first); });
    if (found != values.end()) {
      result += found->second;
      pattern.remove_prefix(found->first.size());
    } else {
      result += pattern.front();
      pattern.remove_prefix(1);
    }
  }
  return result;
}

json conversation(const RewardRequest& request) {
  json messages = json::array();
  for (const Message& message : request.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  messages.push_back({{"role", "assistant"}, {"content", request.solution_str}});
  return messages;
}

[[noreturn]] void fail(const std::string& reason) { throw DataError(reason); }

double number(const json& value) {
  if (!value.is_number()) fail(fmt::format("the score is {}, no number", quoted_start(value.dump())));
  const double score = value.get<double>();
  if (!std::isfinite(score)) fail("the score is not finite");
  return score;
}

const json& member(const json& object, const char* name, const std::string& reply) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end())
    fail(fmt::format("the reply has no \"{}\" where one is due: {}", name, quoted_start(reply)));
  return *found;
}

const json& only_element(const json& list, const char* name, const std::string& reply) {
  if (!list.is_array()) fail(fmt::format("\"{}\" of the reply is no list: {}", name, quoted_start(reply)));
  if (list.size() != 1) fail(fmt::format("\"{}\" of the reply holds {} results for 1 sample", name, list.size()));
  return list.front();
}

// One number, or those of two labels of which the last is the good one (as verl takes it). More are an embedding.
double last_label(const json& value) {
  if (!value.is_array()) return number(value);
  if (value.empty() || value.size() > 2)
    fail(fmt::format("the model gives {} numbers; a reward model gives 1", value.size()));
  return number(value.back());
}

// A list a token (pooling task "encode") ends with the list of the last one.
double pooled(const json& value) {
  return value.is_array() && !value.empty() && value.back().is_array() ? last_label(value.back()) : last_label(value);
}

std::string text_of(const json& value, const std::string& reply) {
  if (!value.is_string()) fail(fmt::format("the reply holds no text: {}", quoted_start(reply)));
  return value.get<std::string>();
}

}  // namespace

ServerEndpoint parse_endpoint(const std::string& url) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("reward.reward_model.endpoint={}: {}", url, what));
  };
  const size_t scheme = url.find("://");
  if (scheme == url.npos || (url.substr(0, scheme) != "http" && url.substr(0, scheme) != "https"))
    refuse("must begin with http:// or https://");
  const size_t slash = url.find('/', scheme + 3);
  const std::string host = url.substr(scheme + 3, slash == url.npos ? url.npos : slash - scheme - 3);
  if (host.empty()) refuse("names no host");
  if (host.find('@') != host.npos) refuse("holds a password: name the variable that holds it in api_key_env");
  const size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {  // not within an IPv6 address
    int port = 0;
    const char* end = host.data() + host.size();
    const auto parsed = std::from_chars(host.data() + colon + 1, end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end || port < 1 || port > 65535)
      refuse("the port must be between 1 and 65535");
  }
  const std::string path = slash == url.npos ? "" : url.substr(slash);
  for (const auto& [end, api] : kPaths)
    if (path.ends_with(end)) return {url.substr(0, slash), path, api};
  refuse("its path must end in /generate, /classify, /score, /pooling or /v1/chat/completions");
  return {};
}

ServerProtocol::ServerProtocol(const RewardServerOptions& options)
    : options_(options), endpoint_(parse_endpoint(options.endpoint)) {
  const auto refuse = [](const char* key, const std::string& what) {
    throw ConfigError(fmt::format("reward.reward_model.{}: {}", key, what));
  };
  const bool text = replies_in_text(endpoint_.api);
  if (text && options.prompt_template.empty())
    refuse("prompt_template",
           "is not set; say what the judge is asked, e.g. 'Rate from 0 to 10. Question: {prompt} "
           "Answer: {response} End with \"Score: N\".'");
  if (!options.prompt_template.empty() && options.prompt_template.find("{response}") == std::string::npos)
    refuse("prompt_template", "has no {response}: every sample would get the same score");
  if (!options.prompt_template.empty() && endpoint_.api == ServerApi::kScore)
    refuse("prompt_template", "/score compares prompt and response as they are: leave it out");
  if (text && options.score_regex.empty())
    refuse("score_regex", "is not set; the endpoint replies in text, e.g. 'Score: *(-?[0-9.]+)'");
  if (!text && !options.score_regex.empty()) refuse("score_regex", "the endpoint replies with numbers: leave it out");
  if (!options.request_kwargs.empty() && !json::parse(options.request_kwargs, nullptr, false).is_object())
    refuse("request_kwargs", "must be a JSON object");
  if (!text) return;
  try {
    // The library's polynomial matcher: a judge's words cannot make it run for ever, as a backtracking one could.
    score_regex_.assign(options.score_regex, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    refuse("score_regex", fmt::format("{} is no regular expression (ECMAScript, no back-references)",
                                      quoted_start(options.score_regex)));
  }
}

std::string ServerProtocol::prompt(const RewardRequest& request) const {
  return filled(options_.prompt_template, request);
}

std::string ServerProtocol::request_body(const RewardRequest& request) const {
  json body = json::object();
  if (!options_.model.empty()) body["model"] = options_.model;
  switch (endpoint_.api) {
    case ServerApi::kGenerate:
      body["prompt"] = prompt(request);
      break;
    case ServerApi::kChat:
      body["messages"] = json::array({json{{"role", "user"}, {"content", prompt(request)}}});
      break;
    case ServerApi::kScore:
      body["text_1"] = prompt_text(request.messages);
      body["text_2"] = request.solution_str;
      break;
    case ServerApi::kClassify:
    case ServerApi::kPooling:
      if (options_.prompt_template.empty())
        body["messages"] = conversation(request);
      else
        body["input"] = prompt(request);
      break;
  }
  if (endpoint_.api == ServerApi::kClassify) body["use_activation"] = false;  // the score itself, as verl asks for it
  if (replies_in_text(endpoint_.api)) {
    body["max_tokens"] = options_.max_tokens;
    body["temperature"] = 0;
  }
  if (!options_.request_kwargs.empty()) body.update(json::parse(options_.request_kwargs));
  return body.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

double ServerProtocol::score(const RewardRequest& request, const std::string& reply) const {
  const json body = json::parse(reply, nullptr, /*allow_exceptions=*/false);
  if (body.is_discarded()) fail(fmt::format("the reply is not JSON: {}", quoted_start(reply)));
  switch (endpoint_.api) {
    case ServerApi::kGenerate: {
      const json& value = member(body, "text", reply);
      std::string text = text_of(value.is_array() ? only_element(value, "text", reply) : value, reply);
      // vLLM's plain server repeats the prompt, which may itself hold what score_regex looks for.
      const std::string asked = prompt(request);
      if (text.starts_with(asked)) text.erase(0, asked.size());
      return find_score(text);
    }
    case ServerApi::kChat: {
      const json& choice = only_element(member(body, "choices", reply), "choices", reply);
      return find_score(text_of(member(member(choice, "message", reply), "content", reply), reply));
    }
    case ServerApi::kClassify:
      return last_label(member(only_element(member(body, "data", reply), "data", reply), "probs", reply));
    case ServerApi::kPooling:
      return pooled(member(only_element(member(body, "data", reply), "data", reply), "data", reply));
    case ServerApi::kScore:
      return number(member(only_element(member(body, "data", reply), "data", reply), "score", reply));
  }
  fail("unknown protocol");
}

double ServerProtocol::find_score(const std::string& text) const {
  if (text.size() > kMaxSearchedBytes)
    fail(fmt::format("the reply's text has {} bytes, more than score_regex is tried on ({}); lower max_tokens",
                     text.size(), kMaxSearchedBytes));
  std::string found;
  bool any = false;
  for (std::sregex_iterator match(text.begin(), text.end(), score_regex_), end; match != end; ++match) {
    any = true;
    found = match->size() > 1 ? (*match)[1].str() : match->str();
  }
  if (!any) fail(fmt::format("score_regex finds nothing in the reply {}", quoted_start(text)));
  const std::string_view trimmed = stripped(found);
  double score = 0;
  const auto [end, code] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), score);
  if (trimmed.empty() || code != std::errc() || end != trimmed.data() + trimmed.size() || !std::isfinite(score))
    fail(fmt::format("score_regex finds {} in the reply, which is no finite number", quoted_start(found)));
  return score;
}

std::string quoted_start(std::string_view text) {
  constexpr size_t kShown = 100;
  std::string shown = "'";
  for (const char c : text.substr(0, kShown)) shown += c == '\n' || c == '\t' ? ' ' : c < ' ' || c > '~' ? '?' : c;
  return shown + (text.size() > kShown ? "...'" : "'");
}

}  // namespace tandem
