// The endpoints of a reward model, in vLLM's form: /classify, /score, /pooling, /tokenize. Handlers are called from
// many connections at once; errors are thrown (server.h makes replies of them).
//
// A conversation (`messages`, or text_1 and text_2 of /score as user's and assistant's turns) is rendered by the
// model's chat template and scored at the last token of its last message, as in training. Plain `input` is scored at
// its last token. `use_activation` (true where vLLM's default is: /classify and /score) gives the score's logistic
// function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "serve/http_server.h"
#include "serve/score_loop.h"
#include "serve/serve_metrics.h"
#include "serve/served_model.h"

namespace tandem {

class ScoreService {
 public:
  // All must outlive it.
  ScoreService(const ServedModel& model, ScoreLoop& loop, ServeMetrics& metrics)
      : model_(model), loop_(loop), metrics_(metrics) {}

  std::vector<HttpRoute> routes();

 private:
  struct Scored {
    std::vector<float> scores;
    int64_t prompt_tokens = 0;
  };
  HttpReply classify(const HttpRequest& http);
  HttpReply pooling(const HttpRequest& http);
  HttpReply score(const HttpRequest& http);
  Scored score_all(std::vector<TrajectoryPtr> replies);
  // `entry` makes a score's members of the reply's `data`, besides its index.
  HttpReply reply_to(const std::string& kind, std::vector<TrajectoryPtr> inputs, bool activate,
                     nlohmann::ordered_json (*entry)(nlohmann::ordered_json value));

  const ServedModel& model_;
  ScoreLoop& loop_;
  ServeMetrics& metrics_;
};

}  // namespace tandem
