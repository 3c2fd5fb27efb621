// A served model on a port: what its service answers, and around that keys, limits, health, metrics, the list of models
// and the chat page. Errors become replies in OpenAI's form.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/engine_loop.h"
#include "serve/http_server.h"
#include "serve/serve_metrics.h"
#include "serve/served_model.h"

namespace tandem {

struct ServerOptions {
  HttpOptions http;
  std::string api_key;     // empty: none is asked for
  bool chat_page = false;  // at /
};

class ModelServer {
 public:
  // `counts`: of the engine, null where there is none. All must outlive it. IoError where the address cannot be had.
  ModelServer(const ServedModel& model, std::vector<HttpRoute> routes, ServeMetrics& metrics,
              std::function<EngineCounts()> counts, ServerOptions options);

  int port() const { return http_->port(); }
  void start() { http_->start(); }
  // Answers nothing new, finishes what it is at; false when that took longer than `seconds`.
  bool drain(int seconds);
  void stop() { http_->stop(); }

 private:
  HttpReply guarded(const HttpHandler& handler, const HttpRequest& http);
  HttpReply check(const HttpRequest& http) const;
  HttpReply health() const;
  HttpReply models() const;
  HttpReply metrics_text() const;

  const ServedModel& model_;
  ServeMetrics& metrics_;
  const std::function<EngineCounts()> counts_;
  const ServerOptions options_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace tandem
