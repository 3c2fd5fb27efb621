#include "serve/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "serve/socket_stream.h"

namespace tandem {
namespace {

constexpr size_t kHeaderBytes = size_t{64} << 10;  // of a request, beyond its body
constexpr int kBacklog = 1024, kSliceMs = 200;
constexpr size_t kMaxRefused = 64;  // kept open for their farewell
constexpr std::chrono::seconds kFarewell{1};
constexpr size_t kMaxRequests = 1 << 20;  // on one connection

class StreamAdapter final : public httplib::Stream {
 public:
  explicit StreamAdapter(SocketStream& stream) : stream_(stream) {}
  bool is_readable() const override { return stream_.readable(); }
  bool is_writable() const override { return stream_.connected(); }
  ssize_t read(char* data, size_t size) override { return stream_.read(data, size); }
  ssize_t write(const char* data, size_t size) override { return stream_.write(data, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return 0; }  // only compared with the size of an fd_set

 private:
  SocketStream& stream_;
};

// What a handler may ask of its connection travels in two callbacks of the request that only clients use.
void set_connection(httplib::Request& request, const SocketStream& stream, bool& close_after) {
  request.progress = [&stream](uint64_t, uint64_t) { return stream.connected(); };
  request.response_handler = [&close_after](const httplib::Response&) { return close_after = true; };
}

HttpRequest plain(const httplib::Request& request) {
  HttpRequest out;
  out.method = request.method, out.path = request.path, out.body = request.body;
  out.authorization = request.get_header_value("Authorization");
  out.content_type = request.get_header_value("Content-Type");
  out.content_encoding = request.get_header_value("Content-Encoding");
  out.connected = [progress = request.progress] { return progress(0, 0); };
  return out;
}

void apply(const HttpReply& reply, httplib::Response& response) {
  response.status = reply.status;
  for (const auto& [name, value] : reply.headers) response.set_header(name, value);
  if (!reply.stream) return response.set_content(reply.body, reply.content_type);
  response.set_chunked_content_provider(reply.content_type, [stream = reply.stream](size_t, httplib::DataSink& sink) {
    bool whole = true;
    stream([&](std::string_view bytes) { return whole = whole && sink.write(bytes.data(), bytes.size()); });
    if (whole) sink.done();
    return whole;
  });
}

int listening_socket(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE, hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (::getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0 || found == nullptr)
    throw IoError("cannot listen at " + host + ": no such address; set --host");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
    error = errno;
    ::close(fd);
  }
  throw IoError(
      fmt::format("cannot listen at {} port {}: {}; set --host and --port", host, port, std::strerror(error)));
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

class HttpServer::Listener final : public httplib::Server {
 public:
  Listener(HttpOptions options, std::vector<HttpRoute> routes, HttpHandler check,
           std::function<std::string(int, const std::string&)> format_error)
      : options_(std::move(options)),
        routes_(std::move(routes)),
        format_error_(std::move(format_error)),
        listening_(listening_socket(options_.host, options_.port)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        port_(port_of(listening_)) {
    svr_sock_ = listening_;  // where it is none, the library writes no streams
    set_payload_max_length(options_.max_body_bytes);
    set_keep_alive_max_count(kMaxRequests);
    set_keep_alive_timeout(options_.keep_alive_seconds);
    for (const HttpRoute& route : routes_) {
      const auto handler = [handle = route.handler](const httplib::Request& request, httplib::Response& response) {
        apply(handle(plain(request)), response);
      };
      if (route.method == "GET") Get(route.path, handler);
      if (route.method == "POST") Post(route.path, handler);
    }
    set_pre_routing_handler(HandlerWithResponse(
        [this, check = std::move(check)](const httplib::Request& request, httplib::Response& response) {
          HttpReply reply = known_route(request);
          if (reply.status == 200) reply = check(plain(request));
          if (reply.status == 200) return HandlerResponse::Unhandled;
          apply(reply, response);
          request.response_handler(response);  // its body was not read, so that nothing can follow
          return HandlerResponse::Handled;
        }));
    set_error_handler(Handler([this](const httplib::Request& request, httplib::Response& response) {
      if (response.body.empty())
        response.set_content(format_error_(response.status, words_of(response.status)), "application/json");
      if (response.status >= 400 && response.status < 500 && request.response_handler)
        if (response.status == 400 || response.status == 413) request.response_handler(response);
    }));
    set_exception_handler([this](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
      response.status = 500;
      response.set_content(format_error_(500, "an internal error; the server's log says more"), "application/json");
    });
  }

  ~Listener() override {
    stop_all();
    ::close(wake_);
  }

  int port() const { return port_; }

  void start() {
    accepting_ = std::thread([this] { accept_all(); });
  }

  bool drain(int seconds) {
    draining_ = true;
    wake();
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(seconds), [&] { return num_live_ == 0; });
  }

  void stop_all() {
    draining_ = true;
    wake();
    {
      const std::lock_guard lock(mutex_);
      for (const Connection& connection : connections_)
        if (connection.fd >= 0) ::shutdown(connection.fd, SHUT_RDWR);
    }
    if (accepting_.joinable()) accepting_.join();
    std::list<Connection> left;
    {
      const std::lock_guard lock(mutex_);
      left.swap(connections_);
    }
    for (Connection& connection : left) connection.thread.join();
    if (listening_ >= 0) ::close(std::exchange(listening_, -1));
  }

  size_t num_connections() const {
    const std::lock_guard lock(mutex_);
    return num_live_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int fd;              // -1: it is closed or being closed
    bool ended = false;  // its thread is done but for returning
    std::thread thread;
  };

  static std::string words_of(int status) {
    switch (status) {
      case 404:
        return "there is nothing at this path";
      case 413:
        return "the request's body is larger than this server takes (--max-body-mb)";
      case 414:
        return "the request's address is too long";
      default:
        return "the request is not valid HTTP";
    }
  }

  HttpReply known_route(const httplib::Request& request) const {
    HttpReply reply;
    const auto error = [&](int status, const std::string& message) {
      reply.status = status;
      reply.body = format_error_(status, message);
      return reply;
    };
    bool path = false;
    for (const HttpRoute& route : routes_) {
      if (route.path != request.path) continue;
      path = true;
      if (route.method == request.method || (route.method == "GET" && request.method == "HEAD")) return reply;
    }
    return path ? error(405, "this path takes another method") : error(404, words_of(404));
  }

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  }

  void accept_all() {
    while (!draining_) {
      pollfd polls[] = {{listening_, POLLIN, 0}, {wake_, POLLIN, 0}};
      ::poll(polls, 2, 1000);
      if (draining_) break;
      reap();
      close_refused(false);
      const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {  // the client has gone already, or files have run out: others may come
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      open(fd);
    }
    close_refused(true);
    ::close(std::exchange(listening_, -1));
  }

  void open(int fd) {
    const std::lock_guard lock(mutex_);
    if (num_live_ >= options_.max_connections) return refuse(fd);
    try {
      connections_.push_back({fd, false, {}});
      auto place = std::prev(connections_.end());
      ++num_live_;
      place->thread = std::thread([this, place, fd] {
        serve(fd);
        {
          const std::lock_guard ending(mutex_);
          place->fd = -1;  // nobody else touches it from here
        }
        SocketStream(fd, limits()).close_politely();
        const std::lock_guard ended(mutex_);
        place->ended = true;
        --num_live_;
        changed_.notify_all();
      });
    } catch (const std::system_error&) {  // no more threads
      connections_.pop_back();
      --num_live_;
      refuse(fd);
    }
  }

  // Closed a while later: at once, bytes that were not read would cost the client the reply.
  void refuse(int fd) {
    const std::string body = format_error_(429, "too many connections; try again");
    const std::string reply = fmt::format(
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(), body);
    [[maybe_unused]] const auto sent = ::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(fd, SHUT_WR);
    refused_.emplace_back(fd, Clock::now());
  }

  void close_refused(bool all) {
    while (!refused_.empty() &&
           (all || refused_.size() > kMaxRefused || Clock::now() - refused_.front().second > kFarewell)) {
      ::close(refused_.front().first);
      refused_.pop_front();
    }
  }

  SocketStream::Limits limits() const {
    return {options_.max_body_bytes + kHeaderBytes, options_.receive_seconds, options_.send_seconds};
  }

  void serve(int fd) {
    try {
      SocketStream stream(fd, limits());
      StreamAdapter adapter(stream);
      bool close_after = false, closed = false;
      while (!close_after && !closed && wait_for_request(stream)) {
        stream.begin_request();
        const auto setup = [&](httplib::Request& request) { set_connection(request, stream, close_after); };
        if (!process_request(adapter, draining_, closed, setup)) break;
        if (draining_) break;
      }
    } catch (const std::exception& error) {
      log_warn(fmt::format("a connection ended: {}", error.what()));
    }
  }

  bool wait_for_request(const SocketStream& stream) const {
    for (int waited = 0; !draining_ && waited < options_.keep_alive_seconds * 1000; waited += kSliceMs)
      if (stream.wait_for_request(kSliceMs)) return true;
    return false;
  }

  void reap() {
    std::list<Connection> ended;
    {
      const std::lock_guard lock(mutex_);
      for (auto c = connections_.begin(); c != connections_.end();) {
        const auto next = std::next(c);
        if (c->ended) ended.splice(ended.end(), connections_, c);
        c = next;
      }
    }
    for (Connection& connection : ended) connection.thread.join();
  }

  const HttpOptions options_;
  const std::vector<HttpRoute> routes_;
  const std::function<std::string(int, const std::string&)> format_error_;
  int listening_;
  const int wake_;
  const int port_;
  std::atomic<bool> draining_ = false;
  std::thread accepting_;
  std::deque<std::pair<int, Clock::time_point>> refused_;  // that thread's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Connection> connections_;
  size_t num_live_ = 0;
};

HttpServer::HttpServer(HttpOptions options, std::vector<HttpRoute> routes, HttpHandler check,
                       std::function<std::string(int, const std::string&)> format_error)
    : listener_(std::make_unique<Listener>(std::move(options), std::move(routes), std::move(check),
                                           std::move(format_error))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return listener_->port(); }
void HttpServer::start() { listener_->start(); }
bool HttpServer::drain(int seconds) { return listener_->drain(seconds); }
void HttpServer::stop() { listener_->stop_all(); }
size_t HttpServer::num_connections() const { return listener_->num_connections(); }

}  // namespace tandem
