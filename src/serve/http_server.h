// HTTP/1.1 by cpp-httplib behind plain values, with sockets of our own: a client that is slow, silent, endless or gone
// costs a thread for a bounded time and a bounded piece of memory, and nobody else anything. A thread a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

struct HttpRequest {
  std::string method, path, body;
  std::string authorization, content_type, content_encoding;  // headers
  std::function<bool()> connected;                            // whether the client is still there
};

using ByteSink = std::function<bool(std::string_view)>;  // false: the client is gone

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json", body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::function<void(const ByteSink&)> stream = {};  // instead of a body: called once, writes it in pieces
};

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

struct HttpRoute {
  std::string method;  // "GET" or "POST"
  std::string path;
  HttpHandler handler;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any
  size_t max_body_bytes = size_t{8} << 20;
  size_t max_connections = 1024;
  int receive_seconds = 30;     // for a request, from its first byte to its last
  int send_seconds = 30;        // for a client to take what is sent
  int keep_alive_seconds = 30;  // between requests
};

class HttpServer {
 public:
  // Listens. `check` sees each request before its body is read: a reply with another status than 200 refuses it.
  // `format_error` gives the body of errors that have none. IoError where the address cannot be had.
  HttpServer(HttpOptions options, std::vector<HttpRoute> routes, HttpHandler check,
             std::function<std::string(int status, const std::string& message)> format_error);
  ~HttpServer();

  int port() const;
  void start();  // accepts, on threads of its own
  // Accepts no more and ends idle connections; true when the last request has been answered within `seconds`.
  bool drain(int seconds);
  void stop();  // cuts what is left, and waits for its threads
  size_t num_connections() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace tandem
