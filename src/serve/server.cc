#include "serve/server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "rollout/sampler.h"
#include "serve/api_error.h"
#include "serve/chat_page.h"
#include "serve/openai_reply.h"

namespace tandem {
namespace {

using json = nlohmann::ordered_json;
constexpr int kRetrySeconds = 1;

HttpReply error_reply(int status, const std::string& message, const std::string& param = {}, int retry_after = 0) {
  HttpReply reply{status, "application/json", error_body(status, message, param), {}, {}};
  if (retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(retry_after));
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

// Takes as long whatever the first difference is.
bool same(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool open_to_all(const std::string& path) { return path == "/" || path == "/health" || path == "/metrics"; }

}  // namespace

ModelServer::ModelServer(const ServedModel& model, std::vector<HttpRoute> routes, ServeMetrics& metrics,
                         std::function<EngineCounts()> counts, ServerOptions options)
    : model_(model), metrics_(metrics), counts_(std::move(counts)), options_(std::move(options)) {
  routes.push_back({"GET", "/health", [this](const HttpRequest&) { return health(); }});
  routes.push_back({"GET", "/metrics", [this](const HttpRequest&) { return metrics_text(); }});
  routes.push_back({"GET", "/v1/models", [this](const HttpRequest&) { return models(); }});
  if (options_.chat_page)
    routes.push_back({"GET", "/", [](const HttpRequest&) {
                        return HttpReply{200,
                                         "text/html; charset=utf-8",
                                         std::string(kChatPage),
                                         {{"Content-Security-Policy",
                                           "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                                           "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"}},
                                         {}};
                      }});
  for (HttpRoute& route : routes)
    route.handler = [this, handler = std::move(route.handler)](const HttpRequest& http) {
      return guarded(handler, http);
    };
  http_ = std::make_unique<HttpServer>(
      options_.http, std::move(routes), [this](const HttpRequest& http) { return check(http); },
      [](int status, const std::string& message) { return error_body(status, message); });
}

bool ModelServer::drain(int seconds) {
  draining_ = true;
  return http_->drain(seconds);
}

HttpReply ModelServer::check(const HttpRequest& http) const {
  if (draining_) return error_reply(503, "the server is shutting down", {}, kRetrySeconds);
  if (!options_.api_key.empty() && !open_to_all(http.path) && !same(http.authorization, "Bearer " + options_.api_key))
    return error_reply(401, "this server asks for its API key: Authorization: Bearer ...");
  if (http.method != "POST") return {};
  // A page of another origin cannot send this type without being asked for leave first.
  if (!http.content_type.starts_with("application/json"))
    return error_reply(415, "send JSON, with the header Content-Type: application/json");
  if (!http.content_encoding.empty() && http.content_encoding != "identity")
    return error_reply(415, "compressed requests are not taken");
  return {};
}

HttpReply ModelServer::guarded(const HttpHandler& handler, const HttpRequest& http) {
  const auto begun = ServeClock::now();
  HttpReply reply;
  try {
    reply = handler(http);
  } catch (const ApiError& error) {
    reply = error_reply(error.status(), error.what(), error.param(), error.retry_after_s());
  } catch (const Overloaded& error) {
    reply = error_reply(429, error.what(), {}, error.retry_after_s());
  } catch (const ShuttingDown& error) {
    reply = error_reply(503, error.what(), {}, kRetrySeconds);
  } catch (const NonFiniteLogits& error) {  // the model's fault, whatever was asked
    log_error(fmt::format("{} {}: {}", http.method, http.path, error.what()));
    reply = error_reply(500, error.what());
  } catch (const Error& error) {  // what a client sent cannot be answered
    reply = error_reply(400, error.what());
  } catch (const std::exception& error) {
    log_error(fmt::format("{} {}: {}", http.method, http.path, error.what()));
    reply = error_reply(500, "an internal error; the server's log says more");
  }
  metrics_.add_reply(http.path, reply.status, std::chrono::duration<double>(ServeClock::now() - begun).count());
  return reply;
}

HttpReply ModelServer::health() const { return {200, "application/json", R"({"status":"ok"})", {}, {}}; }

HttpReply ModelServer::models() const {
  json model = {{"id", model_.name()},
                {"object", "model"},
                {"created", model_.started()},
                {"owned_by", "tandem"},
                {"root", model_.folder().string()},
                {"max_model_len", model_.max_model_len()}};
  if (counts_) model["weights_version"] = counts_().weights_version;
  const json list = {{"object", "list"}, {"data", json::array({std::move(model)})}};
  return {200, "application/json", list.dump(-1, ' ', false, json::error_handler_t::replace), {}, {}};
}

HttpReply ModelServer::metrics_text() const {
  EngineCounts counts;
  if (counts_) counts = counts_();
  return {
      200, "text/plain; version=0.0.4", metrics_.text(counts_ ? &counts : nullptr, http_->num_connections()), {}, {}};
}

}  // namespace tandem
