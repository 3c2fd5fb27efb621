#include "dashboard/server.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "dashboard/assets.h"
#include "observe/temp_folder.h"

namespace tandem {
namespace {

using nlohmann::json;

void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

int port_of(const Dashboard& dashboard) {
  const std::string url = dashboard.url();
  return std::stoi(url.substr(url.rfind(':') + 1));
}

class Server : public testing::Test {
 protected:
  Server() {
    write(folder_ / "runs/a/metrics.jsonl", "{\"step\":1,\"x\":2}\n");
    write(folder_ / "secret.json", "secret");
    write(folder_ / "runs/a/trace_step_3.json", "{\"traceEvents\":[]}");
    dashboard_.emplace(DashboardOptions{{folder_ / "runs"}, "127.0.0.1", 0, {}}, "--port");
    client_.emplace("127.0.0.1", port_of(*dashboard_));
    for (int i = 0; i < 500 && json::parse(get("/api/runs"))["runs"].empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  std::string get(const std::string& path, int status = 200) {
    const auto result = client_->Get(path);
    if (!result) return ADD_FAILURE() << path << ": no answer", "";
    EXPECT_EQ(result->status, status) << path << "\n" << result->body;
    return result->body;
  }

  TempFolder folder_;
  std::optional<Dashboard> dashboard_;
  std::optional<httplib::Client> client_;
};

TEST_F(Server, ServesThePageFromItself) {
  EXPECT_NE(get("/").find("<!doctype html>"), std::string::npos);
  const auto script = client_->Get("/app.js");
  EXPECT_EQ(script->get_header_value("Content-Type"), "text/javascript; charset=utf-8");
  EXPECT_NE(script->get_header_value("Content-Security-Policy").find("default-src 'self'"), std::string::npos);
  // What was built in is what lies in the source, byte for byte.
  for (const char* name : {"app.js", "style.css", "index.html"}) {
    std::ifstream file(std::filesystem::path(TANDEM_TEST_DATA) / "../../src/dashboard/web" / name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(get(std::string("/") + name), text) << name;
  }
  EXPECT_GT(get("/uPlot.iife.min.js").size(), 40'000u);
}

// Else the browser finds them one import after the other.
TEST_F(Server, ThePageNamesAllItsPartsAtOnce) {
  const std::string page = get("/");
  for (const Asset& asset : dashboard_assets())
    if (asset.path.ends_with(".js") || asset.path.ends_with(".css"))
      EXPECT_NE(page.find("=\"" + std::string(asset.path) + "\""), std::string::npos) << asset.path;
}

TEST_F(Server, AnswersAboutRuns) {
  EXPECT_EQ(json::parse(get("/api/series?run=a&metric=x&pieces=10&smoothing=nonsense"))["x"]["runs"]["a"]["smooth"],
            json({2}));
  EXPECT_EQ(json::parse(get("/api/rows?run=a&prefix=x"))["steps"], json({1}));
  EXPECT_EQ(get("/api/trace?run=a&step=3"), "{\"traceEvents\":[]}");
  EXPECT_NE(get("/metrics").find("tandem_x{run=\"a\"} 2"), std::string::npos);
  EXPECT_TRUE(json::parse(get("/api/system")).is_object());
}

TEST_F(Server, NothingOutsideTheRunsIsReached) {
  for (const char* path : {"/../secret.json", "/%2e%2e/secret.json", "/secret.json", "/api/trace",
                           "/api/trace?run=a&step=../../secret", "/api/config?run=..", "/api/config?run=../runs/a",
                           "/api/samples?run=%2Fetc", "/api/trace?run=a&step=4", "/api/nothing"})
    EXPECT_EQ(get(path, 404).find("secret\n"), std::string::npos) << path;
}

TEST_F(Server, AnswersToItsOwnNameOnly) {
  httplib::Headers elsewhere = {{"Host", "evil.example"}};
  EXPECT_EQ(client_->Get("/api/runs", elsewhere)->status, 403);
  EXPECT_EQ(client_->Get("/api/runs", {{"Host", "127.0.0.1.evil.example:80"}})->status, 403);
  EXPECT_EQ(client_->Get("/api/runs", {{"Host", "localhost:99"}})->status, 200);
}

TEST_F(Server, TellsOfChanges) {
  std::string heard;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    write(folder_ / "runs/a/metrics.jsonl", "{\"step\":2,\"x\":3}\n");
  });
  client_->set_read_timeout(10);
  client_->Get("/api/events", [&](const char* data, size_t size) {
    heard.append(data, size);
    size_t events = 0;
    for (size_t at = 0; (at = heard.find("event: change\n", at)) != heard.npos; ++at) ++events;
    return events < 2;  // what there is, then what is new
  });
  writer.join();
  EXPECT_EQ(heard.find("event: change\ndata: "), 0u) << heard;
  EXPECT_EQ(json::parse(get("/api/runs"))["runs"][0]["rows"], 2);
}

TEST_F(Server, TellsAPageOnlyWhatItHasNotSeen) {
  const auto seen = json::parse(get("/api/runs"))["version"].get<uint64_t>();
  const auto begin = std::chrono::steady_clock::now();
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    write(folder_ / "runs/a/metrics.jsonl", "{\"step\":2,\"x\":3}\n");
  });
  client_->set_read_timeout(10);
  client_->Get("/api/events?seen=" + std::to_string(seen), [](const char*, size_t) { return false; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  writer.join();
}

TEST_F(Server, ATakenPortIsRefused) {
  try {
    const Dashboard second({{folder_ / "runs"}, "127.0.0.1", port_of(*dashboard_), {}}, "trainer.dashboard.port");
    FAIL() << "two servers on one port";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("trainer.dashboard.port: cannot listen on 127.0.0.1:"), std::string::npos)
        << error.what();
  }
}

TEST_F(Server, EndsAtOnceWhileAPageListens) {
  std::thread page([port = port_of(*dashboard_)] {
    httplib::Client client("127.0.0.1", port);
    client.set_read_timeout(20);
    client.Get("/api/events", [](const char*, size_t) { return true; });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  dashboard_.reset();
  page.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace tandem
