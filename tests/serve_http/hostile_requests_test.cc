// The server's HTTP and its readers of requests, without a model, so that sanitizers can see all of it: thousands of
// malformed, cut, slow and huge requests harm nobody and leave nothing behind. TANDEM_HOSTILE_REQUESTS says how many.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "serve/api_error.h"
#include "serve/http_server.h"
#include "serve/openai_request.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kHead = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

std::string post(const std::string& body) {
  return kHead + ("Content-Length: " + std::to_string(body.size())) + "\r\n\r\n" + body;
}

const std::string& good_request() {
  static const std::string text = post(R"({"prompt": "ab", "max_tokens": 3, "seed": 1, "stop": ["x", "y"]})");
  return text;
}
const std::string& good_stream() {
  static const std::string text = post(R"({"prompt": [1, 2, 3], "stream": true, "logprobs": 2})");
  return text;
}

// What it says follows from the request alone.
HttpReply answer_completion(const HttpRequest& http) {
  try {
    const CompletionRequest request = read_completion(http.body, {.vocab = 1000});
    const std::string text = std::to_string(request.prompts.size()) + " prompts";
    if (!request.stream) return {200, "application/json", "{\"text\":\"" + text + "\"}", {}, {}};
    HttpReply reply{200, "text/event-stream", {}, {}, {}};
    reply.stream = [text](const ByteSink& sink) {
      for (int i = 0; i < 5; ++i) {
        if (!sink("data: " + text + "\n\n")) return;
        std::this_thread::sleep_for(milliseconds(1));
      }
    };
    return reply;
  } catch (const ApiError& error) {
    return {error.status(), "application/json", error.what(), {}, {}};
  }
}

HttpReply answer_chat(const HttpRequest& http) {
  try {
    return {200, "application/json", read_chat(http.body, {.vocab = 1000}).messages, {}, {}};
  } catch (const ApiError& error) {
    return {error.status(), "application/json", error.what(), {}, {}};
  }
}

HttpReply check_type(const HttpRequest& http) {
  const bool json = http.method != "POST" || http.content_type.starts_with("application/json");
  return {json ? 200 : 415, "application/json", "{}", {}, {}};
}

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) connected_ = false;
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the other side has hung up, which it may
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void end_sending() const { ::shutdown(fd_, SHUT_WR); }
  // All that comes until the other side closes, or `enough` is there.
  std::string receive(std::string_view enough, milliseconds limit) const {
    std::string got;
    std::array<char, 4096> buffer{};
    const auto until = Clock::now() + limit;
    while (Clock::now() < until && (enough.empty() || got.find(enough) == got.npos)) {
      pollfd poll{fd_, POLLIN, 0};
      if (::poll(&poll, 1, 50) <= 0) continue;
      const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      got.append(buffer.data(), static_cast<size_t>(count));
    }
    return got;
  }

 private:
  int fd_;
  bool connected_ = true;
};

using Random = std::mt19937_64;

size_t below(Random& random, size_t bound) { return random() % bound; }

std::string repeated(std::string_view piece, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

std::string flipped(Random& random, std::string text) {
  for (size_t i = 0; i <= below(random, 8); ++i) text[below(random, text.size())] = static_cast<char>(random());
  return text;
}

std::string noise(Random& random, size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::string hostile_request(Random& random, size_t kind) {
  const std::string& good = random() % 2 == 0 ? good_request() : good_stream();
  const std::string body = good.substr(good.find("\r\n\r\n") + 4);
  switch (kind % 18) {
    case 0:
      return good.substr(0, 1 + below(random, good.size() - 1));
    case 1:
      return flipped(random, good);
    case 2:
      return noise(random, 1 + below(random, 3000));
    case 3:
      return "GET /" + std::string(1 + below(random, 20000), 'a') + " HTTP/1.1\r\n\r\n";
    case 4:
      return "GET / HTTP/1.1\r\nRange: bytes=" + repeated("0-1,", 2000) + "\r\n\r\n";
    case 5:
      return "GET / HTTP/1.1\r\n" + repeated("X: y\r\n", 1 + below(random, 20000)) + "\r\n";
    case 6:
      return std::string(kHead) + "Content-Length: 99999999999999999999\r\n\r\n" + body;
    case 7:
      return std::string(kHead) + "Content-Length: -1\r\n\r\n" + body;
    case 8:
      return std::string(kHead) + "Content-Length: 1000000000\r\n\r\n" + std::string(1 + below(random, 100000), 'x');
    case 9:
      return std::string(kHead) + "Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n" + body;
    case 10:
      return post(std::string(100 + below(random, 100000), '['));
    case 11:
      return std::string(kHead) + "Content-Length: 200000\r\n\r\n" + repeated("{\"a\":", 40000);
    case 12:
      return "POST /v1/completions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: "
             "5\r\n\r\n--x--";
    case 13:
      return std::string(kHead) + "Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde";
    case 14:
      return good + good + good.substr(0, 20);  // one after the other without waiting
    case 15:
      return post(R"({"prompt": [)" + std::to_string(static_cast<int64_t>(random() % 4000) - 2000) + "]}");
    case 16:
      return post(
          flipped(random, R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}]})"));
    default:
      return std::string(kHead) + "Transfer-Encoding: chunked\r\n\r\n" + repeated("1\r\nx\r\n", below(random, 4000));
  }
}

size_t open_files() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0, resident = 0;
  file >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// Sanitizers keep what is freed for a while, and look for leaks themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kRoomMb = 512;
#else
constexpr double kRoomMb = 48;
#endif

size_t wanted_requests() {
  const char* wanted = std::getenv("TANDEM_HOSTILE_REQUESTS");
  return wanted == nullptr ? 600 : std::strtoul(wanted, nullptr, 10);
}

TEST(HttpServer, HostileRequestsHarmNobodyAndLeaveNothingBehind) {
  HttpOptions options{.port = 0, .max_body_bytes = 1 << 20, .max_connections = 64, .receive_seconds = 2};
  options.keep_alive_seconds = 2;
  HttpServer server(options,
                    {{"POST", "/v1/completions", answer_completion}, {"POST", "/v1/chat/completions", answer_chat}},
                    check_type, [](int, const std::string& message) { return "{\"error\":\"" + message + "\"}"; });
  server.start();
  const size_t files = open_files();
  const auto eventually_idle = [&] {
    const auto until = Clock::now() + std::chrono::seconds(20);
    while (server.num_connections() > 0 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_EQ(server.num_connections(), 0U);
  };

  std::atomic<size_t> refused = 0;
  const auto storm = [&](size_t count, size_t seed) {
    Random random(seed);
    for (size_t i = 0; i < count; ++i) {
      const Client client(server.port());
      if (!client.connected()) ++refused;
      const std::string bytes = hostile_request(random, random());
      const size_t cut = random() % 4 == 0 ? below(random, bytes.size()) : bytes.size();
      client.send(std::string_view(bytes).substr(0, cut));
      if (cut < bytes.size()) std::this_thread::sleep_for(milliseconds(1));
      client.send(std::string_view(bytes).substr(cut));
      if (random() % 10 < 7) {
        client.end_sending();
        client.receive({}, std::chrono::seconds(10));
      }
    }
  };
  const auto storms = [&](size_t count, size_t seed) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) threads.emplace_back(storm, count / 8, seed + t);
    size_t asked = 0;
    const auto ask = [&] {  // others, all the while
      const Client client(server.port());
      const bool streamed = asked++ % 2 == 1;
      client.send(streamed ? good_stream() : good_request());
      const std::string reply = client.receive(streamed ? "\r\n0\r\n\r\n" : "1 prompts\"}", std::chrono::seconds(5));
      if (reply.starts_with("HTTP/1.1 429 ")) return;
      EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 ") && reply.find("1 prompts") != reply.npos) << reply;
    };
    std::atomic<bool> over = false;
    std::thread neighbour([&] {
      while (!over) ask();
    });
    for (std::thread& thread : threads) thread.join();
    over = true;
    neighbour.join();
    EXPECT_GT(asked, 0U);
    eventually_idle();
  };

  storms(wanted_requests() / 4, 100);
  const double memory = resident_mb();
  storms(wanted_requests() - wanted_requests() / 4, 200);
  EXPECT_EQ(refused, 0U) << "connections are taken";
  EXPECT_LT(resident_mb() - memory, kRoomMb) << "MiB more than after the first quarter";
  EXPECT_LE(open_files(), files + 64) << "those that were refused are closed a second later";
  EXPECT_TRUE(server.drain(5));
  server.stop();
}

}  // namespace
}  // namespace tandem
