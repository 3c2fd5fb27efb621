// The controller's own path at scale without the machines: control/worker_group.h and control/dispatch.h drive leaders
// of four stub workers over TCP. Prints, a JSON line for each number of workers, what crossed the controller's sockets,
// what it computed, and what a step took beyond the workers' own time. The sockets' transport is this bench's own: the
// product's ranks talk by parallel/communicator.h. Handles, ids and scalars cross, as control/dispatch.h splits them.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "control/worker_group.h"
#include "controller/messages.h"
#include "controller/stub_workers.h"
#include "observe/metrics.h"
#include "programs/advantage.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchArguments {
  std::vector<int> workers{4, 64, 256, 1024};
  int group = 4, steps = 2, prompts = 1024, samples = 8;
  double step_seconds = 30, generate_share = 0.6, score_share = 0.1;
  double heartbeat = 5;
  double most_control = 0.01;  // of a step, for --check
  bool check = false;
};

// The controller's end of a leader: the methods that a program calls on its roles.
class LeaderProxy {
 public:
  explicit LeaderProxy(int fd) : fd_(fd) {}
  ~LeaderProxy() {
    stub::write_message(fd_, {stub::Kind::kStop, {}}, traffic_);
    close(fd_);
  }
  LeaderProxy(const LeaderProxy&) = delete;
  LeaderProxy& operator=(const LeaderProxy&) = delete;

  RolloutBatch generate(const PromptList& prompts) {
    return stub::decode(ask({stub::Kind::kGenerate, stub::encode_ids(prompts)}));
  }
  RolloutBatch score(const RolloutBatch& batch) { return stub::decode(ask({stub::Kind::kScore, stub::encode(batch)})); }
  Metrics update_policy(const RolloutBatch& batch) {
    ask({stub::Kind::kUpdate, stub::encode(batch)});
    return {};
  }
  const stub::Traffic& traffic() const { return traffic_; }

 private:
  std::string ask(const stub::Message& message) {
    stub::write_message(fd_, message, traffic_);
    for (;;) {
      stub::Message answer = stub::read_message(fd_, traffic_);
      if (answer.kind == stub::Kind::kResult) return std::move(answer.body);
    }
  }
  int fd_;
  stub::Traffic traffic_;
};

struct Sockets {
  std::vector<int> controller, leaders;
};

// Real connections over the loopback interface, made before the process is split.
Sockets connect_all(int count) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  check(bind(listener, any, size) == 0 && listen(listener, 1024) == 0 && getsockname(listener, any, &size) == 0,
        "a listening socket");
  Sockets out;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    check(fd >= 0 && connect(fd, any, size) == 0, "a connection; raise ulimit -n");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    out.controller.push_back(fd);
    out.leaders.push_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    setsockopt(out.leaders.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  close(listener);
  return out;
}

pid_t start_stubs(const Sockets& sockets, const BenchArguments& a, int workers, const stub::StubTimes& times) {
  const pid_t child = fork();
  if (child != 0) return child;
  for (const int fd : sockets.controller) close(fd);
  stub::serve({sockets.leaders, std::min(a.group, workers), a.samples}, times);
  _exit(0);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

struct Measured {
  double seconds = 0, cpu = 0;
  stub::Traffic traffic;
};

// programs/grpo.h's step: generate, score, estimate, update.
void step(WorkerGroup<LeaderProxy>& group, const PromptList& prompts, int samples) {
  const RolloutBatch drawn = group.call<&LeaderProxy::generate>("gen", prompts);
  ScoredBatch scored{group.call<&LeaderProxy::score>("reward", drawn), {}};
  estimate_advantages(scored, {});
  group.call<&LeaderProxy::update_policy>("update_actor", scored.samples);
  check(scored.samples.size() == prompts.size() * static_cast<size_t>(samples), "every sample came back");
  for (size_t i = 0; i < scored.samples.size(); ++i)
    check(scored.samples[i].handle == i && scored.samples[i].reward == static_cast<double>(i % 3),
          "samples came back in their order");
}

Measured measure(const BenchArguments& a, int workers, const stub::StubTimes& times) {
  const int leaders = std::max(1, workers / a.group);
  const Sockets sockets = connect_all(leaders);
  const pid_t child = start_stubs(sockets, a, workers, times);
  for (const int fd : sockets.leaders) close(fd);
  Measured out;
  {
    std::vector<std::shared_ptr<LeaderProxy>> proxies;
    for (const int fd : sockets.controller) proxies.push_back(std::make_shared<LeaderProxy>(fd));
    WorkerGroup<LeaderProxy> group(proxies);
    PromptList prompts;
    for (int i = 0; i < a.prompts; ++i) {
      auto prompt = std::make_shared<Prompt>();
      prompt->id = static_cast<uint64_t>(i);
      prompts.push_back(std::move(prompt));
    }
    const double cpu = cpu_seconds();
    const auto start = Clock::now();
    for (int i = 0; i < a.steps; ++i) step(group, prompts, a.samples);
    out.seconds = std::chrono::duration<double>(Clock::now() - start).count() / a.steps;
    out.cpu = (cpu_seconds() - cpu) / a.steps;
    for (const auto& proxy : proxies) {
      out.traffic.sent += proxy->traffic().sent, out.traffic.received += proxy->traffic().received;
      out.traffic.messages += proxy->traffic().messages;
    }
  }
  waitpid(child, nullptr, 0);
  return out;
}

int run(const BenchArguments& a) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  stub::StubTimes times;
  times.generate = a.step_seconds * a.generate_share, times.score = a.step_seconds * a.score_share;
  times.update = a.step_seconds - times.generate - times.score;
  times.heartbeat = a.heartbeat;
  double least = 0, most = 0, control = 0, cores = 0;
  for (const int workers : a.workers) {
    const Measured m = measure(a, workers, times);
    const double bytes = static_cast<double>(m.traffic.sent + m.traffic.received) / a.steps;
    const double rate = bytes / m.seconds, share = (m.seconds - a.step_seconds) / a.step_seconds;
    least = least == 0 ? rate : std::min(least, rate), most = std::max(most, rate);
    control = std::max(control, share), cores = std::max(cores, m.cpu / m.seconds);
    const nlohmann::ordered_json line{{"name", "controller"},
                                      {"workers", workers},
                                      {"leaders", std::max(1, workers / a.group)},
                                      {"samples", a.prompts * a.samples},
                                      {"step_s", m.seconds},
                                      {"workers_s", a.step_seconds},
                                      {"control_share", share},
                                      {"bytes_per_step", bytes},
                                      {"mb_per_s", rate / 1e6},
                                      {"messages_per_step", static_cast<double>(m.traffic.messages) / a.steps},
                                      {"cpu_s_per_step", m.cpu},
                                      {"cores", m.cpu / m.seconds}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  if (!a.check) return 0;
  const bool ok = most < 5e6 && most <= 2 * least && control < a.most_control && cores < 1;
  fmt::print(
      R"({{"name": "controller_check", "ok": {}, "most_mb_per_s": {:.3f}, "growth": {:.2f}, "control_share": {:.5f}}})"
      "\n",
      ok, most / 1e6, most / least, control);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  CLI::App app("The controller's traffic and time against the number of workers");
  tandem::BenchArguments a;
  app.add_option("--workers", a.workers, "numbers of stub workers")->delimiter(',');
  app.add_option("--group", a.group, "workers of a leader")->capture_default_str();
  app.add_option("--steps", a.steps)->capture_default_str();
  app.add_option("--prompts", a.prompts, "of a step, whatever the number of workers")->capture_default_str();
  app.add_option("--samples", a.samples, "a prompt")->capture_default_str();
  app.add_option("--step-seconds", a.step_seconds, "that the workers take")->capture_default_str();
  app.add_option("--heartbeat", a.heartbeat, "seconds between a leader's signs of life")->capture_default_str();
  app.add_option("--most-control", a.most_control, "share of a step that the control plane may take under --check")
      ->capture_default_str();
  app.add_flag("--check", a.check,
               "exit with 1 unless traffic is below 5 MB/s and within 2x, and control below its bound");
  CLI11_PARSE(app, argc, argv);
  return tandem::run(a);
}
