// Keys, ports, versions, endpoints, and how findings are told.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "preflight/endpoint.h"
#include "preflight/keys.h"
#include "preflight/ports.h"
#include "preflight/report.h"
#include "preflight/tree.h"
#include "preflight/versions.h"

namespace tandem {
namespace {

// Listens on a free port of 127.0.0.1 and, given words, says them to one client.
class Listener {
 public:
  explicit Listener(std::string answer = "") {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    if (answer.empty()) return;
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int client = accept(fd_, nullptr, nullptr);
      char bytes[1024];
      const ssize_t n = recv(client, bytes, sizeof bytes, 0);
      heard_.assign(bytes, n > 0 ? static_cast<size_t>(n) : 0);
      send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(client);
    });
  }
  ~Listener() {
    if (thread_.joinable()) thread_.join();
    close(fd_);
  }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/classify"; }
  std::string heard() {
    thread_.join();
    return heard_;
  }

 private:
  int fd_ = -1, port_ = 0;
  std::thread thread_;
  std::string heard_;
};

std::string all_of(const Finding& finding) {
  std::string text = finding.why;
  for (const std::string& detail : finding.details) text += "\n" + detail;
  return text;
}

TEST(Keys, PrintsEverySizeThatFollows) {
  LoadedConfig loaded;
  loaded.config.data.train_batch_size = 8;
  loaded.config.actor_rollout_ref.rollout.n = 4;
  loaded.config.actor_rollout_ref.actor.ppo_mini_batch_size = 4;
  loaded.config.trainer.n_gpus_per_node = 2;
  const Finding finding = check_keys(loaded, "");
  EXPECT_EQ(finding.verdict, Verdict::kPass);
  const std::string text = all_of(finding);
  EXPECT_NE(text.find("32 = 8 prompts x 4"), std::string::npos) << text;
  EXPECT_NE(text.find("2 of 16 samples"), std::string::npos) << text;
  EXPECT_NE(text.find("4.0 prompts drawn, 8.0 samples"), std::string::npos) << text;
}

TEST(Keys, WarnsAndFails) {
  LoadedConfig loaded;
  loaded.warnings = {"n=1 has nothing to compare with"};
  EXPECT_EQ(check_keys(loaded, "").verdict, Verdict::kWarn);
  const Finding failed = check_keys(std::nullopt, "data.foo: unknown key");
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_EQ(failed.why, "data.foo: unknown key");
}

TEST(Attempted, TellsAnErrorsOwnWords) {
  EXPECT_EQ(attempted(
                "model", [] { return std::string("fine"); }, "r")
                .verdict,
            Verdict::kPass);
  const Finding failed = attempted(
      "model", []() -> std::string { throw IoError("no folder"); }, "name one");
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_EQ(failed.check, "model");
  EXPECT_EQ(failed.why, "no folder");
  EXPECT_EQ(failed.remedy, "name one");
}

TEST(Ports, FreeAndTaken) {
  const Listener listener;
  EXPECT_EQ(check_ports({}).verdict, Verdict::kPass);
  EXPECT_EQ(check_ports({{"trainer.dashboard.port", "127.0.0.1", 0}}).verdict, Verdict::kPass);
  const Finding taken = check_ports({{"trainer.dashboard.port", "127.0.0.1", listener.port()}});
  EXPECT_EQ(taken.verdict, Verdict::kFail);
  EXPECT_NE(taken.remedy.find("trainer.dashboard.port"), std::string::npos);
}

TEST(Endpoint, ReadsUrls) {
  const Endpoint plain = host_of("http://judge:8000/classify");
  EXPECT_EQ(plain.host, "judge");
  EXPECT_EQ(plain.port, 8000);
  EXPECT_EQ(plain.path, "/classify");
  EXPECT_EQ(host_of("https://judge").port, 443);
  EXPECT_EQ(host_of("http://[::1]:81/").host, "::1");
  for (const char* url : {"judge:8000", "ftp://x/", "http://", "http://h:99999/", "http://h:x/"})
    EXPECT_THROW(host_of(url), ConfigError) << url;
}

TEST(Endpoint, AliveByItsAnswer) {
  Listener listener("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(check_endpoint(listener.url(), 5).verdict, Verdict::kPass);
  EXPECT_TRUE(listener.heard().starts_with("GET /health HTTP/1.1\r\n"));
  const Listener without_health("HTTP/1.1 404 Not Found\r\n\r\n");
  EXPECT_EQ(check_endpoint(without_health.url(), 5).verdict, Verdict::kPass);
}

TEST(Endpoint, DeadSickOrSilent) {
  std::string dead;
  {
    const Listener gone;
    dead = gone.url();
  }
  EXPECT_EQ(check_endpoint(dead, 2).verdict, Verdict::kFail);
  const Listener sick("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  EXPECT_NE(check_endpoint(sick.url(), 5).why.find("503"), std::string::npos);
  const Listener silent;
  EXPECT_EQ(check_endpoint(silent.url(), 0.2).verdict, Verdict::kFail);
  const Listener stranger("SSH-2.0-OpenSSH\r\n");
  EXPECT_EQ(check_endpoint(stranger.url(), 5).verdict, Verdict::kFail);
  EXPECT_EQ(check_endpoint("http://no.such.host.invalid:1/", 2).verdict, Verdict::kFail);
}

NodeFacts node(const std::string& host, const std::string& torch, const std::string& net) {
  return {host, {{"tandem", "0.1.0"}, {"libtorch", torch}, {"kernel", "6.1"}}, {net}};
}

TEST(Versions, TheSameOnAllMachinesOrNamed) {
  const NodeFacts here = node("a", "2.11.0", "10.0.0.0/24");
  EXPECT_EQ(check_versions(here, {}).verdict, Verdict::kPass);
  EXPECT_EQ(check_versions(here, {node("b", "2.11.0", "10.0.0.0/24")}).verdict, Verdict::kPass);
  const Finding other = check_versions(here, {node("b", "2.10.0", "10.0.0.0/24")});
  EXPECT_EQ(other.verdict, Verdict::kFail);
  EXPECT_EQ(other.why, "libtorch: 2.11.0 here, 2.10.0 on b");
  EXPECT_EQ(check_versions(here, {node("b", "2.11.0", "10.0.1.0/24")}).verdict, Verdict::kFail);
  NodeFacts kernel = node("b", "2.11.0", "10.0.0.0/24");
  kernel.versions[2].second = "6.2";
  EXPECT_EQ(check_versions(here, {kernel}).verdict, Verdict::kWarn);
}

TEST(Versions, HashesDifferWithAnyPart) {
  const Versions versions{{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(versions_hash(versions), versions_hash({{"a", "1"}, {"b", "2"}}));
  EXPECT_NE(versions_hash(versions), versions_hash({{"a", "1"}, {"b", "3"}}));
  EXPECT_NE(versions_hash(versions), versions_hash({{"a", "12"}, {"b", ""}}));
  EXPECT_EQ(versions_hash(versions).size(), 16u);
}

TEST(Versions, OfAModelFolderSeeNamesSizesAndBytes) {
  Tree a, b;
  for (Tree* tree : {&a, &b}) tree->write("config.json", "{}").write("model.safetensors", "weights");
  EXPECT_EQ(model_fingerprint(a.root()), model_fingerprint(b.root()));
  b.write("config.json", "{ }");
  EXPECT_NE(model_fingerprint(a.root()), model_fingerprint(b.root()));
}

TEST(Versions, TheDriversIsRead) {
  Tree tree;
  tree.write("/proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan\nGCC version: 12\n");
  const Versions versions = system_versions(tree.system());
  EXPECT_EQ(versions.back(), (std::pair<std::string, std::string>{"nvidia driver", "570.86.15"}));
}

TEST(Report, JsonIsReadBackByAnotherMachine) {
  Finding finding{"memory", Verdict::kWarn, "tight", "take less", {"a", "b"}};
  const NodeFacts facts = node("a", "2.11.0", "10.0.0.0/24");
  const std::string json = report_json({finding}, facts);
  const auto parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed["verdict"], "warn");
  EXPECT_EQ(parsed["checks"][0]["remedy"], "take less");
  EXPECT_EQ(parsed["node"]["versions_hash"], versions_hash(facts.versions));
  EXPECT_EQ(parse_node(json, "x").versions, facts.versions);
  EXPECT_THROW(parse_node("{}", "x"), DataError);
  EXPECT_THROW(parse_node("no json", "x"), DataError);
}

TEST(Report, TextNamesVerdictReasonAndRemedy) {
  Finding finding{"ports", Verdict::kPass, "none", "", {}};
  finding.worsen(Verdict::kWarn, "first", "one");
  finding.worsen(Verdict::kFail, "second", "two");
  finding.worsen(Verdict::kWarn, "third", "three");
  EXPECT_EQ(finding.details, (std::vector<std::string>{"first", "third"}));
  const std::string text = report_text({finding});
  EXPECT_NE(text.find("fail  ports     second"), std::string::npos) << text;
  EXPECT_NE(text.find("-> two"), std::string::npos);
  EXPECT_NE(text.find("fail: 1 checks, 0 warnings, 1 failures"), std::string::npos);
}

}  // namespace
}  // namespace tandem
