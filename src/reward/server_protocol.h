// What is said to a reward server and what its replies mean: vLLM's HTTP API. Pure functions, thread-safe.
//   /generate             text of vLLM's plain server; score_regex finds the score
//   /v1/chat/completions  a judge's words (OpenAI); score_regex finds the score
//   /classify, /pooling   a discriminative model's last number (of one, or of two labels)
//   /score                a cross-encoder's score of (prompt, response)
#pragma once

#include <regex>
#include <string>

#include "reward/reward.h"

namespace tandem {

enum class ServerApi { kGenerate, kClassify, kScore, kPooling, kChat };

struct ServerEndpoint {
  std::string origin;  // "http://host:8000"
  std::string path;    // "/classify"
  ServerApi api = ServerApi::kClassify;
};
// ConfigError unless it is an http or https URL whose path ends in one of the above.
ServerEndpoint parse_endpoint(const std::string& url);

class ServerProtocol {
 public:
  // ConfigError for options that the protocol cannot work with.
  explicit ServerProtocol(const RewardServerOptions& options);

  const ServerEndpoint& endpoint() const { return endpoint_; }
  std::string request_body(const RewardRequest& request) const;  // JSON
  // The one finite score in a reply of status 200. DataError with the reason only, no sample's name.
  double score(const RewardRequest& request, const std::string& reply_body) const;

 private:
  std::string prompt(const RewardRequest& request) const;
  double find_score(const std::string& text) const;

  const RewardServerOptions options_;
  const ServerEndpoint endpoint_;
  std::regex score_regex_;
};

// The start of a text for an error line: printable ASCII, quoted.
std::string quoted_start(std::string_view text);

}  // namespace tandem
