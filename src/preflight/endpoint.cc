#include "preflight/endpoint.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace tandem {
namespace {

class Connection {
 public:
  // Empty `problem`: connected.
  Connection(const Endpoint& to, int timeout_ms) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found); error != 0) {
      problem = fmt::format("the name {} is not known: {}", to.host, gai_strerror(error));
      return;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      if (fd_ >= 0) close(fd_);
      fd_ = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
      problem = fd_ < 0 ? std::strerror(errno) : connect_to(*a, timeout_ms);
      if (problem.empty()) return;
    }
  }
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The first line of the answer; empty: none in time.
  std::string ask(const std::string& request, int timeout_ms) {
    if (::send(fd_, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return "";
    std::string answer;
    char bytes[512];
    while (answer.find('\n') == std::string::npos && answer.size() < 4096) {
      pollfd waiting{fd_, POLLIN, 0};
      if (poll(&waiting, 1, timeout_ms) <= 0) return "";
      const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) break;
      answer.append(bytes, static_cast<size_t>(n));
    }
    return answer.substr(0, answer.find_first_of("\r\n"));
  }

  std::string problem;

 private:
  std::string connect_to(const addrinfo& address, int timeout_ms) const {
    if (connect(fd_, address.ai_addr, address.ai_addrlen) == 0) return "";
    if (errno != EINPROGRESS) return std::strerror(errno);
    pollfd waiting{fd_, POLLOUT, 0};
    if (poll(&waiting, 1, timeout_ms) <= 0) return fmt::format("no answer within {} s", timeout_ms / 1000.0);
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? "" : std::strerror(error);
  }
  int fd_ = -1;
};

}  // namespace

Endpoint host_of(const std::string& url) {
  const size_t colon = url.find("://");
  Endpoint out;
  out.scheme = url.substr(0, colon);
  const auto refuse = [&](const char* what) {
    throw ConfigError(fmt::format("reward.reward_model.endpoint={}: {}; write http://host:port/classify", url, what));
  };
  if (colon == std::string::npos || (out.scheme != "http" && out.scheme != "https")) refuse("is no http or https URL");
  const std::string rest = url.substr(colon + 3);
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string authority = rest.substr(0, slash);
  out.path = slash < rest.size() ? rest.substr(slash) : "/";
  out.port = out.scheme == "https" ? 443 : 80;
  const size_t port = authority.rfind(':');
  if (port != std::string::npos && authority.find(']', port) == std::string::npos) {
    const char* end = authority.data() + authority.size();
    const auto [at, error] = std::from_chars(authority.data() + port + 1, end, out.port);
    if (error != std::errc() || at != end || out.port < 1 || out.port > 65535)
      refuse("its port is no number up to 65535");
    authority.resize(port);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) authority = authority.substr(1, authority.size() - 2);
  if (authority.empty()) refuse("names no host");
  out.host = authority;
  return out;
}

Finding check_endpoint(const std::string& url, double timeout_seconds) {
  Finding finding{"reward", Verdict::kPass, "", "", {}};
  const char* remedy = "start the reward server, or correct reward.reward_model.endpoint";
  try {
    const Endpoint to = host_of(url);
    const int timeout_ms = static_cast<int>(timeout_seconds * 1000);
    Connection connection(to, timeout_ms);
    if (!connection.problem.empty()) {
      finding.worsen(Verdict::kFail,
                     fmt::format("the reward server {}:{} cannot be reached: {}", to.host, to.port, connection.problem),
                     remedy);
      return finding;
    }
    finding.why = fmt::format("{}:{} accepts connections", to.host, to.port);
    if (to.scheme == "https") return finding;
    const std::string line = connection.ask(
        fmt::format("GET /health HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n\r\n", to.host, to.port), timeout_ms);
    if (!line.starts_with("HTTP/")) {
      finding.worsen(
          Verdict::kFail,
          fmt::format("{}:{} accepts connections, but does not answer HTTP in {} s", to.host, to.port, timeout_seconds),
          remedy);
    } else if (const auto status = line.substr(std::min(line.size(), line.find(' ') + 1)); status.starts_with('5')) {
      finding.worsen(Verdict::kFail, fmt::format("{}:{} says of its health: {}", to.host, to.port, status),
                     "see the server's own log");
    } else {
      finding.why = fmt::format("{}:{} answers: {}", to.host, to.port, status);
    }
  } catch (const ConfigError& error) {
    finding.worsen(Verdict::kFail, error.what(), "correct the key");
  }
  return finding;
}

}  // namespace tandem
