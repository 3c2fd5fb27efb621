#include "preflight/ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem {
namespace {

// Why nobody can listen there; empty: one can.
std::string problem_of(const ListeningPort& wanted) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(wanted.port));
  const std::string host = wanted.host == "localhost" ? "127.0.0.1" : wanted.host;
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return "";  // a name: left to the run
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const int reuse = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  const bool ok = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  const std::string problem = ok ? "" : std::strerror(errno);
  close(fd);
  return problem;
}

}  // namespace

Finding check_ports(const std::vector<ListeningPort>& ports) {
  Finding finding{"ports", Verdict::kPass, ports.empty() ? "the run listens on none" : "", "", {}};
  for (const ListeningPort& port : ports) {
    const std::string name = port.port == 0 ? port.host : fmt::format("{}:{}", port.host, port.port);
    const std::string problem = problem_of(port);
    if (!problem.empty())
      finding.worsen(
          Verdict::kFail, fmt::format("{} cannot be listened on ({}): {}", name, port.key, problem),
          fmt::format("end what uses it (ss -ltnp shows it), or set {} to another; 0 takes any free one", port.key));
    else
      finding.details.push_back(fmt::format("{} is free ({})", name, port.key));
  }
  if (finding.why.empty()) finding.why = fmt::format("{} free", ports.size());
  return finding;
}

}  // namespace tandem
