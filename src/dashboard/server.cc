#include "dashboard/server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "dashboard/assets.h"
#include "dashboard/meters.h"
#include "observe/json_text.h"

namespace tandem {
namespace {

using httplib::Request;
using httplib::Response;

constexpr std::chrono::milliseconds kPoll{500};
constexpr std::chrono::seconds kHeartbeat{10};  // shorter than the time after which a proxy hangs up
constexpr int kMaxStreams = 24;
constexpr size_t kThreads = 32;  // a stream keeps one
constexpr size_t kMaxMetrics = 200, kMaxRuns = 100, kMaxPieces = 2000, kMaxRows = 20'000, kMaxSamples = 200;
constexpr const char* kJson = "application/json";

const char* content_type(std::string_view path) {
  if (path.ends_with(".html")) return "text/html; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

// The library would compress a text that it is given whole, at the slowest setting: a second a megabyte, to save what a
// local line carries in a millisecond.
void send(Response& response, std::string text, const char* type) {
  auto kept = std::make_shared<const std::string>(std::move(text));
  response.set_content_provider(kept->size(), type, [kept](size_t offset, size_t length, httplib::DataSink& sink) {
    return sink.write(kept->data() + offset, length);
  });
}

void refuse(Response& response, int status, std::string_view why) {
  response.status = status;
  std::string body = "{\"error\":";
  append_json_string(body, why);
  response.set_content(body + "}", kJson);
}

std::vector<std::string> words(const Request& request, const char* name, size_t most) {
  std::vector<std::string> out;
  const size_t count = std::min(request.get_param_value_count(name), most);
  for (size_t i = 0; i < count; ++i) out.push_back(request.get_param_value(name, i));
  return out;
}

std::string word(const Request& request, const char* name) {
  return request.has_param(name) ? request.get_param_value(name) : std::string();
}

template <class Number>
std::optional<Number> number(const Request& request, const char* name) {
  const std::string text = word(request, name);
  Number value{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

SeriesQuery series_query(const Request& request) {
  SeriesQuery query;
  query.runs = words(request, "run", kMaxRuns);
  query.metrics = words(request, "metric", kMaxMetrics);
  if (request.has_param("band")) query.bands = words(request, "band", kMaxRuns);
  query.pieces = std::clamp<size_t>(number<size_t>(request, "pieces").value_or(300), 2, kMaxPieces);
  query.smoothing = std::clamp(number<double>(request, "smoothing").value_or(0), 0.0, 0.9999);
  query.by_time = word(request, "x") == "time";
  query.begin = number<double>(request, "begin");
  query.end = number<double>(request, "end");
  return query;
}

SampleFilter sample_filter(const Request& request) {
  SampleFilter filter;
  filter.first_step = number<int64_t>(request, "first_step").value_or(filter.first_step);
  filter.last_step = number<int64_t>(request, "last_step").value_or(filter.last_step);
  filter.least_reward = number<double>(request, "least_reward").value_or(filter.least_reward);
  filter.most_reward = number<double>(request, "most_reward").value_or(filter.most_reward);
  filter.stop_reason = word(request, "stop_reason");
  filter.data_source = word(request, "data_source");
  filter.prompt = number<uint64_t>(request, "prompt");
  const std::string order = word(request, "order");
  filter.order = order == "oldest"  ? SampleOrder::kOldest
                 : order == "best"  ? SampleOrder::kBest
                 : order == "worst" ? SampleOrder::kWorst
                                    : SampleOrder::kNewest;
  return filter;
}

bool is_loopback(std::string_view host) {
  const bool is_number = host.find_first_not_of("0123456789.") == host.npos;  // 127.0.0.1.example.com is elsewhere
  return host == "localhost" || host == "[::1]" || host == "::1" || (is_number && host.starts_with("127."));
}

// "localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon == host.npos || host.ends_with(']') ? host : host.substr(0, colon);
}

}  // namespace

class Dashboard::State {
 public:
  State(DashboardOptions options, std::string_view key)
      : options_(std::move(options)), store_(options_.roots, kPoll), meters_(options_.roots.front()) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    add_routes();
    listen(key);
  }

  ~State() {
    store_.stop();
    server_.stop();
    thread_.join();
  }

  std::string url() const {
    const std::string host = options_.host == "0.0.0.0" ? "127.0.0.1" : options_.host;
    return fmt::format("http://{}:{}/", host.find(':') == host.npos ? host : "[" + host + "]", port_);
  }

 private:
  void listen(std::string_view key) {
    // Not the library's SO_REUSEPORT: two servers of one port would each get some of the questions.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    const bool bound = options_.port == 0 ? (port_ = server_.bind_to_any_port(options_.host)) > 0
                                          : server_.bind_to_port(options_.host, port_ = options_.port);
    if (!bound)
      throw ConfigError(
          fmt::format("{}: cannot listen on {}:{}: the port is taken or the address is not this "
                      "machine's; choose another port, or 0 for any that is free",
                      key, options_.host, options_.port));
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // stop() needs it
  }

  void add_routes() {
    server_.set_keep_alive_max_count(1000);
    server_.set_keep_alive_timeout(2);
    server_.set_tcp_nodelay(true);
    server_.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"},
                                 // Samples are what a model wrote: nothing in them may run.
                                 {"Content-Security-Policy",
                                  "default-src 'self'; img-src 'self' data:; "
                                  "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}});
    server_.set_pre_routing_handler([this](const Request& request, Response& response) {
      // A page elsewhere may point its own name at this machine; such questions carry that name.
      if (!is_loopback(options_.host) || is_loopback(without_port(request.get_header_value("Host"))))
        return Server::HandlerResponse::Unhandled;
      refuse(response, 403, "this dashboard answers to localhost only; start it with a --host to reach it by name");
      return Server::HandlerResponse::Handled;
    });
    server_.set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
      refuse(response, 500, "the dashboard failed on this question");
    });
    add_page();
    server_.Get("/api/runs",
                [this](const Request&, Response& response) { send(response, runs_answer(store_), kJson); });
    server_.Get("/api/series", [this](const Request& request, Response& response) {
      send(response, series_answer(store_, series_query(request)), kJson);
    });
    server_.Get("/api/system",
                [this](const Request&, Response& response) { send(response, meters_.as_json(), kJson); });
    server_.Get("/metrics", [this](const Request&, Response& response) {
      send(response, prometheus_answer(store_), "text/plain; version=0.0.4");
    });
    server_.Get("/api/events", [this](const Request& request, Response& response) {
      stream(response, number<uint64_t>(request, "seen").value_or(0));
    });
    add_run_routes();
  }

  void add_page() {
    for (const Asset& asset : dashboard_assets()) {
      const auto serve = [&asset](const Request&, Response& response) {
        response.set_header("Cache-Control", "no-cache");
        send(response, std::string(asset.content), content_type(asset.path));
      };
      if (asset.path == "index.html") server_.Get("/", serve);
      std::string pattern = "/";  // a path is a regular expression to the library
      for (const char c : asset.path) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
      server_.Get(pattern, serve);
    }
  }

  // A route about one run, named by ?run=.
  template <class Answer>
  void run_route(const char* path, Answer answer) {
    server_.Get(path, [this, answer](const Request& request, Response& response) {
      const auto run = store_.find(word(request, "run"));
      if (!run) return refuse(response, 404, "there is no such run");
      const std::optional<std::string> body = answer(*run, request);
      if (!body) return refuse(response, 404, "the run has no such thing");
      send(response, *body, kJson);
    });
  }

  void add_run_routes() {
    using Body = std::optional<std::string>;
    run_route("/api/rows", [](RecordedRun& run, const Request& request) -> Body {
      const size_t most = std::min(number<size_t>(request, "most").value_or(500), kMaxRows);
      return rows_answer(run, word(request, "prefix"), most);
    });
    run_route("/api/samples", [](RecordedRun& run, const Request& request) -> Body {
      const size_t count = std::min(number<size_t>(request, "count").value_or(50), kMaxSamples);
      return samples_answer(run, sample_filter(request), number<size_t>(request, "first").value_or(0), count);
    });
    run_route("/api/sample", [this](RecordedRun& run, const Request& request) -> Body {
      const auto index = number<size_t>(request, "index");
      return index ? sample_answer(run, *index, options_.token_texts) : std::nullopt;
    });
    run_route("/api/config", [](RecordedRun& run, const Request&) -> Body { return config_answer(run); });
    run_route("/api/log", [](RecordedRun& run, const Request&) -> Body { return log_answer(run); });
    run_route("/api/trace", [](RecordedRun& run, const Request& request) -> Body {
      const auto step = number<int64_t>(request, "step");
      const auto steps = run.traces();
      if (!step || std::find(steps.begin(), steps.end(), *step) == steps.end()) return std::nullopt;
      return read_file(run.folder() / fmt::format("trace_step_{}.json", *step));
    });
  }

  // Says when something has changed since the version `from`; what, the page asks for as it needs it.
  void stream(Response& response, uint64_t from) {
    if (++streams_ > kMaxStreams) {
      --streams_;
      return refuse(response, 503, "too many pages are open");
    }
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, seen = from](size_t, httplib::DataSink& sink) mutable {
          const uint64_t now = store_.wait(seen, kHeartbeat);
          if (store_.stopped()) return sink.done(), true;
          const std::string text =
              now == seen ? std::string(": still here\n\n") : fmt::format("event: change\ndata: {}\n\n", now);
          seen = now;
          return sink.write(text.data(), text.size());
        },
        [this](bool) { --streams_; });
  }

  using Server = httplib::Server;
  const DashboardOptions options_;
  RunStore store_;
  MeterLog meters_;
  Server server_;
  std::atomic<int> streams_ = 0;
  int port_ = 0;
  std::thread thread_;
};

Dashboard::Dashboard(DashboardOptions options, std::string_view key)
    : state_(std::make_unique<State>(std::move(options), key)) {}
Dashboard::~Dashboard() = default;
std::string Dashboard::url() const { return state_->url(); }

}  // namespace tandem
