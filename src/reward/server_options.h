// How a reward server is spoken to: reward.reward_model of the configuration.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct RewardServerOptions {
  std::string endpoint;  // "http://host:8000/classify": the path's end names the protocol; empty: no server
  std::string model;     // "model" of each request; empty: not sent
  // What a sample becomes. {prompt}, {response}, {ground_truth} and {data_source} are filled in; empty: the
  // conversation itself, where the protocol takes one.
  std::string prompt_template;
  std::string
      score_regex;  // finds the score in a text reply: its first group, or the whole match; the last match counts
  int64_t max_tokens = 512;             // of a text reply
  std::string request_kwargs;           // a JSON object: further members of each request
  std::string api_key;                  // sent as "Authorization: Bearer"; empty: not sent
  size_t max_concurrent = 64;           // requests in flight
  size_t max_retries = 3;               // further tries after a failed one
  double timeout_seconds = 60;          // for one try, from connecting to the last byte
  double sample_timeout_seconds = 300;  // for one sample, all tries and pauses together
  double retry_pause_seconds = 0.5;     // before the first retry; doubles each time, at most 30 s
};

}  // namespace tandem
