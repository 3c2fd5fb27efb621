#include "reward/server_protocol.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/expect_error.h"

namespace tandem {
namespace {

using nlohmann::json;

RewardServerOptions number_server(const std::string& path) { return {.endpoint = "http://judge:8000" + path}; }

RewardServerOptions judge(const std::string& path = "/v1/chat/completions") {
  return {.endpoint = "http://judge:8000" + path,
          .prompt_template = "Q: {prompt} T: {ground_truth} A: {response} {x}",
          .score_regex = "Score: *(-?[0-9.]+)"};
}

const RewardRequest kRequest{
    .data_source = "src", .solution_str = "It is {ground_truth}.", .ground_truth = "4", .messages = {{"user", "2+2?"}}};

json body(const RewardServerOptions& options, const RewardRequest& request = kRequest) {
  return json::parse(ServerProtocol(options).request_body(request));
}

void expect_bad(const RewardServerOptions& options, const std::string& reply, const std::string& reason) {
  expect_error<DataError>([&] { ServerProtocol(options).score(kRequest, reply); }, {reason});
}

TEST(ServerEndpoint, ThePathChoosesTheProtocol) {
  const ServerEndpoint endpoint = parse_endpoint("http://10.0.0.7:8000/rm/classify");
  EXPECT_EQ(endpoint.origin, "http://10.0.0.7:8000");
  EXPECT_EQ(endpoint.path, "/rm/classify");
  EXPECT_EQ(endpoint.api, ServerApi::kClassify);
  EXPECT_EQ(parse_endpoint("https://host/score").api, ServerApi::kScore);
  EXPECT_EQ(parse_endpoint("http://[::1]:80/pooling").origin, "http://[::1]:80");
  EXPECT_EQ(parse_endpoint("http://host/generate").api, ServerApi::kGenerate);
  EXPECT_EQ(parse_endpoint("http://host/v1/chat/completions").api, ServerApi::kChat);
}

TEST(ServerEndpoint, RefusesWhatItCannotReach) {
  const std::pair<const char*, const char*> cases[] = {
      {"host:8000/classify", "http://"},       {"ftp://host/classify", "http://"},
      {"http:///classify", "no host"},         {"http://host:8000", "must end in"},
      {"http://host/reward", "must end in"},   {"http://me:pw@host/score", "password"},
      {"http://host:99999/score", "the port"}, {"http://host:/score", "the port"},
  };
  for (const auto& [url, reason] : cases)
    expect_error<ConfigError>([&] { parse_endpoint(url); }, {std::string("endpoint=") + url, reason});
}

TEST(ServerProtocol, RefusesOptionsThatDoNotFit) {
  const auto refuse = [](RewardServerOptions options, const std::string& key) {
    expect_error<ConfigError>([&] { ServerProtocol protocol(options); }, {"reward.reward_model." + key});
  };
  const auto with = [](RewardServerOptions options, auto change) {
    change(options);
    return options;
  };
  refuse(with(judge(), [](auto& o) { o.score_regex = ""; }), "score_regex");
  refuse(with(judge(), [](auto& o) { o.score_regex = "("; }), "score_regex");
  refuse(with(judge(), [](auto& o) { o.prompt_template = ""; }), "prompt_template");
  refuse(with(judge(), [](auto& o) { o.prompt_template = "{prompt}"; }), "prompt_template");
  refuse(with(number_server("/classify"), [](auto& o) { o.score_regex = "x"; }), "score_regex");
  refuse(with(number_server("/score"), [](auto& o) { o.prompt_template = "{response}"; }), "prompt_template");
  refuse(with(number_server("/classify"), [](auto& o) { o.request_kwargs = "[]"; }), "request_kwargs");
}

TEST(ServerProtocol, SaysWhatVllmExpects) {
  auto options = number_server("/classify");
  EXPECT_EQ(body(options), json::parse(R"({"use_activation": false, "messages": [
    {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is {ground_truth}."}]})"));
  options.prompt_template = "{prompt}|{response}";
  options.model = "rm";
  options.request_kwargs = R"({"use_activation": true, "priority": 1})";
  EXPECT_EQ(body(options), json::parse(R"({"model": "rm", "use_activation": true, "priority": 1,
    "input": "2+2?|It is {ground_truth}."})"));
  EXPECT_EQ(body(number_server("/score")), json::parse(R"({"text_1": "2+2?", "text_2": "It is {ground_truth}."})"));
  EXPECT_TRUE(body(number_server("/pooling")).contains("messages"));
  EXPECT_EQ(body(judge()), json::parse(R"({"max_tokens": 512, "temperature": 0, "messages": [
    {"role": "user", "content": "Q: 2+2? T: 4 A: It is {ground_truth}. {x}"}]})"));
  EXPECT_EQ(body(judge("/generate"))["prompt"], "Q: 2+2? T: 4 A: It is {ground_truth}. {x}");
}

TEST(ServerProtocol, TellsConversationsByRoles) {
  RewardRequest request = kRequest;
  request.messages = {{"system", "Be brief."}, {"user", "2+2?"}};
  EXPECT_EQ(body(number_server("/score"), request)["text_1"], "system: Be brief.\n\nuser: 2+2?");
}

TEST(ServerProtocol, SurvivesBytesThatAreNoText) {
  RewardRequest request = kRequest;
  request.solution_str = "\xff\xfe";
  EXPECT_NO_THROW(body(number_server("/classify"), request));
}

TEST(ServerProtocol, ReadsNumbers) {
  const auto score = [](const char* path, const char* reply) {
    return ServerProtocol(number_server(path)).score(kRequest, reply);
  };
  EXPECT_EQ(score("/classify", R"({"data": [{"probs": [-1.5]}]})"), -1.5);
  EXPECT_EQ(score("/classify", R"({"data": [{"label": "good", "probs": [0.25, 0.75]}]})"), 0.75);
  EXPECT_EQ(score("/pooling", R"({"data": [{"data": [2]}]})"), 2);
  EXPECT_EQ(score("/pooling", R"({"data": [{"data": 3.5}]})"), 3.5);
  EXPECT_EQ(score("/pooling", R"({"data": [{"data": [[1], [2], [7]]}]})"), 7);  // one a token
  EXPECT_EQ(score("/score", R"({"data": [{"score": 1e-3}]})"), 1e-3);
}

TEST(ServerProtocol, RefusesWhatIsNotOneFiniteNumber) {
  const auto classify = number_server("/classify");
  expect_bad(classify, R"({"data": [{"probs": [null]}]})", "'null', no number");
  expect_bad(classify, R"({"data": [{"probs": ["1.0"]}]})", "no number");
  expect_bad(classify, R"({"data": [{"probs": [NaN]}]})", "not JSON");
  expect_bad(classify, R"({"data": [{"probs": [1e999]}]})", "not JSON");
  expect_bad(classify, R"({"data": [{"probs": []}]})", "0 numbers");
  expect_bad(classify, R"({"data": [{"probs": [1, 2, 3]}]})", "3 numbers");
  expect_bad(classify, R"({"data": []})", "0 results for 1 sample");
  expect_bad(classify, R"({"data": [{"probs": [1]}, {"probs": [1]}]})", "2 results for 1 sample");
  expect_bad(classify, R"({"data": 5})", "no list");
  expect_bad(classify, R"({"object": "error", "message": "busy"})", "busy");
  expect_bad(classify, "[1]", "no \"data\"");
  expect_bad(classify, "", "not JSON");
  expect_bad(classify, "<html>\n\xf0</html>", "'<html> ?</html>'");
  expect_bad(number_server("/score"), R"({"data": [{"score": true}]})", "no number");
}

TEST(ServerProtocol, FindsTheLastScoreInText) {
  const auto chat = [](const std::string& text) {
    return ServerProtocol(judge()).score(kRequest, json{{"choices", {{{"message", {{"content", text}}}}}}}.dump());
  };
  EXPECT_EQ(chat("Score: 3, or rather\nScore: -7.5"), -7.5);
  const auto bad = [&](const std::string& text, const std::string& reason) {
    expect_error<DataError>([&] { chat(text); }, {reason});
  };
  bad("I will not say.", "finds nothing in the reply 'I will not say.'");
  bad("Score: 1.2.3", "'1.2.3' in the reply, which is no finite number");
  bad("Score: .", "no finite number");
  bad(std::string(70'000, 'x'), "max_tokens");
  expect_bad(judge(), R"({"choices": [{"message": {"content": null}}]})", "no text");
  expect_bad(judge(), R"({"choices": []})", "0 results");
}

TEST(ServerProtocol, DoesNotSearchTheRepeatedPrompt) {
  auto options = judge("/generate");
  options.prompt_template = "{response} End with Score: 0";
  const std::string asked = "It is {ground_truth}. End with Score: 0";
  const auto score = [&](const json& text) {
    return ServerProtocol(options).score(kRequest, json{{"text", text}}.dump());
  };
  EXPECT_EQ(score({asked + "\nScore: 9"}), 9);
  EXPECT_EQ(score("Score: 8"), 8);
  expect_error<DataError>([&] { score({asked}); }, {"finds nothing"});
}

TEST(ServerProtocol, NoTextMakesTheSearchEndless) {
  auto options = judge();
  options.score_regex = "(a|a)*b([0-9])";
  const std::string text(1'500, 'a');
  const auto begin = std::chrono::steady_clock::now();
  expect_bad(options, json{{"choices", {{{"message", {{"content", text}}}}}}}.dump(), "finds nothing");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace tandem
