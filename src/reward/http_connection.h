// One kept-alive HTTP connection: cpp-httplib behind plain values.
#pragma once

#include <memory>
#include <string>

namespace tandem {

struct HttpReply {
  int status = 0;
  std::string body;
  double retry_after = 0;  // seconds the server asks to wait before another try; 0: it does not say
  std::string failure;     // why there is no reply; empty: there is one
};

class HttpConnection {
 public:
  // `origin` is "http://host:port" or "https://host". Nothing is sent yet.
  HttpConnection(const std::string& origin, const std::string& bearer_token);
  ~HttpConnection();

  // Sends JSON and waits for the reply, reconnecting where the old connection is gone. Replies above 8 MiB are
  // failures. `seconds` bounds each wait for bytes, not their sum: abort() bounds that. One call at a time.
  HttpReply post(const std::string& path, const std::string& json, double seconds);
  // Whether something listens: the reason if not, else empty.
  std::string try_to_connect(double seconds);
  // Ends the post() that another thread may be in, which then fails. Thread-safe.
  void abort();

 private:
  struct Client;
  std::unique_ptr<Client> client_;
};

}  // namespace tandem
