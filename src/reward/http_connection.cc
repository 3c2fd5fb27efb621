#include "reward/http_connection.h"

#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <chrono>

namespace tandem {
namespace {

constexpr size_t kMaxReplyBytes = size_t{8} << 20;
constexpr double kMaxConnectSeconds = 10;

std::string why(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "cannot connect";
    case httplib::Error::ConnectionTimeout:
      return "connecting timed out";
    case httplib::Error::Read:
      return "the connection was closed or timed out before the whole reply had come";
    case httplib::Error::Write:
      return "the connection was closed while the request was sent";
    case httplib::Error::Canceled:
      return "the reply is larger than 8 MiB";
    default:
      return httplib::to_string(error);
  }
}

double retry_after(const httplib::Response& response) {
  const std::string text = response.get_header_value("Retry-After");
  double seconds = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return code == std::errc() && end == text.data() + text.size() && seconds > 0 ? seconds : 0;
}

}  // namespace

struct HttpConnection::Client {
  explicit Client(const std::string& origin) : http(origin) {}

  void set_timeouts(double seconds) {
    using Seconds = std::chrono::duration<double>;
    const auto limit = [](double s) { return std::chrono::duration_cast<std::chrono::microseconds>(Seconds(s)); };
    http.set_connection_timeout(limit(std::min(seconds, kMaxConnectSeconds)));
    http.set_read_timeout(limit(seconds));
    http.set_write_timeout(limit(seconds));
  }

  httplib::Client http;
};

HttpConnection::HttpConnection(const std::string& origin, const std::string& bearer_token)
    : client_(std::make_unique<Client>(origin)) {
  client_->http.set_keep_alive(true);
  client_->http.set_tcp_nodelay(true);
  client_->http.set_url_encode(false);
  if (!bearer_token.empty()) client_->http.set_bearer_token_auth(bearer_token);
}

HttpConnection::~HttpConnection() = default;

HttpReply HttpConnection::post(const std::string& path, const std::string& json, double seconds) {
  client_->set_timeouts(seconds);
  HttpReply reply;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.body = json;
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    if (reply.body.size() + size > kMaxReplyBytes) return false;
    reply.body.append(data, size);
    return true;
  };
  const httplib::Result result = client_->http.send(request);
  if (!result) {
    reply.failure = why(result.error());
    return reply;
  }
  reply.status = result->status;
  reply.retry_after = retry_after(*result);
  return reply;
}

std::string HttpConnection::try_to_connect(double seconds) {
  client_->set_timeouts(seconds);
  const httplib::Result result = client_->http.Get("/health");
  // Whatever it answers, or that it takes its time, something is there.
  if (result || result.error() == httplib::Error::Read) return {};
  return why(result.error());
}

void HttpConnection::abort() { client_->http.stop(); }

}  // namespace tandem
