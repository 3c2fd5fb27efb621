#include "controller/stub_workers.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <queue>

#include "base/error.h"
#include "control/dispatch.h"
#include "controller/messages.h"

namespace tandem::stub {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A socket that is read and written as it can be, within one loop.
class Channel {
 public:
  Channel(int fd, int epoll) : fd_(fd), epoll_(epoll) {
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
    epoll_event event{EPOLLIN, {.ptr = this}};
    check(epoll_ctl(epoll_, EPOLL_CTL_ADD, fd_, &event) == 0, "epoll takes a socket");
  }
  ~Channel() { close(fd_); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  std::function<void(Message)> on_message;
  bool closed = false;

  void send_message(const Message& message) {
    unsent_ += framed(message);
    flush();
  }

  void ready(uint32_t events) {
    if ((events & EPOLLOUT) != 0) flush();
    if ((events & (EPOLLIN | EPOLLHUP)) == 0) return;
    char bytes[1 << 16];
    ssize_t n = 0;
    while ((n = recv(fd_, bytes, sizeof bytes, 0)) > 0) received_.append(bytes, static_cast<size_t>(n));
    if (n == 0) {
      closed = true;
      epoll_ctl(epoll_, EPOLL_CTL_DEL, fd_, nullptr);
    }
    while (auto message = take_message(received_)) on_message(std::move(*message));
  }

 private:
  void flush() {
    while (!unsent_.empty()) {
      const ssize_t n = send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      unsent_.erase(0, static_cast<size_t>(n));
    }
    epoll_event event{EPOLLIN | (unsent_.empty() ? 0u : static_cast<uint32_t>(EPOLLOUT)), {.ptr = this}};
    if (!closed) epoll_ctl(epoll_, EPOLL_CTL_MOD, fd_, &event);
  }

  int fd_, epoll_;
  std::string received_, unsent_;
};

struct Timer {
  Clock::time_point at;
  std::function<void()> run;
  bool operator<(const Timer& other) const { return at > other.at; }
};

class Loop {
 public:
  Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Loop() { close(epoll_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int epoll() const { return epoll_; }
  void after(double seconds, std::function<void()> run) {
    timers_.push({Clock::now() + of_seconds(seconds), std::move(run)});
  }

  void run(const std::function<bool()>& done) {
    epoll_event events[256];
    while (!done()) {
      const auto wait = timers_.empty() ? std::chrono::milliseconds(1000)
                                        : std::chrono::ceil<std::chrono::milliseconds>(timers_.top().at - Clock::now());
      const int n = epoll_wait(epoll_, events, 256, static_cast<int>(std::clamp<int64_t>(wait.count(), 0, 1000)));
      for (int i = 0; i < n; ++i) static_cast<Channel*>(events[i].data.ptr)->ready(events[i].events);
      while (!timers_.empty() && timers_.top().at <= Clock::now()) {
        const auto due = timers_.top().run;
        timers_.pop();
        due();
      }
    }
  }

 private:
  int epoll_;
  std::priority_queue<Timer> timers_;
};

// Stands for an engine: its samples have the shape that drawn ones have.
RolloutBatch drawn(const std::vector<PromptPtr>& prompts, int samples_per_prompt) {
  RolloutBatch batch;
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int s = 0; s < samples_per_prompt; ++s) {
      Sample sample;
      sample.prompt_id = prompts[i]->id;
      sample.sample_index = static_cast<uint32_t>(s), sample.group = static_cast<uint32_t>(i);
      sample.handle = prompts[i]->id * static_cast<uint64_t>(samples_per_prompt) + static_cast<uint64_t>(s);
      sample.prompt_length = 128, sample.response_length = sample.trained_length = 512;
      batch.push_back(sample);
    }
  return batch;
}

class Worker {
 public:
  Worker(int fd, Loop& loop, const StubTimes& times, int samples_per_prompt)
      : channel_(fd, loop.epoll()), loop_(loop), times_(times), samples_per_prompt_(samples_per_prompt) {
    channel_.on_message = [this](Message message) { called(std::move(message)); };
  }

 private:
  void called(Message message) {
    Message result{Kind::kResult, {}};
    double seconds = times_.update;
    if (message.kind == Kind::kGenerate) {
      seconds = times_.generate;
      result.body = encode(drawn(decode_ids(message.body), samples_per_prompt_));
    } else if (message.kind == Kind::kScore) {
      seconds = times_.score;
      RolloutBatch batch = decode(message.body);
      for (Sample& sample : batch) sample.score = sample.reward = static_cast<double>(sample.handle % 3);
      result.body = encode(batch);
    }
    loop_.after(seconds, [this, result = std::move(result)] { channel_.send_message(result); });
  }

  Channel channel_;
  Loop& loop_;
  const StubTimes& times_;
  int samples_per_prompt_;
};

class Leader {
 public:
  Leader(int fd, Loop& loop, const StubGroups& groups, const StubTimes& times)
      : controller_(fd, loop.epoll()), loop_(loop), times_(times) {
    controller_.on_message = [this](Message message) { called(std::move(message)); };
    for (int i = 0; i < groups.workers_of_each; ++i) {
      int pair[2];
      check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "a pair of sockets; raise ulimit -n");
      workers_.push_back(std::make_unique<Worker>(pair[1], loop, times, groups.samples_per_prompt));
      channels_.push_back(std::make_unique<Channel>(pair[0], loop.epoll()));
      channels_.back()->on_message = [this, i](Message message) {
        answered(static_cast<size_t>(i), std::move(message));
      };
    }
    beat();
  }
  bool done() const { return stopped_ || controller_.closed; }

 private:
  void called(Message message) {
    if (message.kind == Kind::kStop) {
      stopped_ = true;
      return;
    }
    kind_ = message.kind, missing_ = channels_.size();
    parts_.assign(channels_.size(), {});
    std::vector<std::string> bodies(channels_.size());
    if (kind_ == Kind::kGenerate) {
      const auto split = Dispatch<PromptList>::split(decode_ids(message.body), channels_.size());
      std::ranges::transform(split, bodies.begin(), encode_ids);
    } else {
      const auto split = Dispatch<RolloutBatch>::split(decode(message.body), channels_.size());
      std::ranges::transform(split, bodies.begin(), encode);
    }
    for (size_t i = 0; i < channels_.size(); ++i) channels_[i]->send_message({kind_, std::move(bodies[i])});
  }

  void answered(size_t worker, Message message) {
    parts_[worker] = decode(message.body);
    if (--missing_ > 0) return;
    const bool silent = kind_ == Kind::kUpdate;  // an update gives metrics, of which one worker's stand for all
    controller_.send_message(
        {Kind::kResult, silent ? std::string(512, 'm') : encode(Dispatch<RolloutBatch>::merge(parts_))});
  }

  void beat() {
    if (done()) return;
    controller_.send_message({Kind::kHeartbeat, std::string(8 * channels_.size(), 'b')});
    loop_.after(times_.heartbeat, [this] { beat(); });
  }

  Channel controller_;
  Loop& loop_;
  const StubTimes& times_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<RolloutBatch> parts_;
  Kind kind_ = Kind::kStop;
  size_t missing_ = 0;
  bool stopped_ = false;
};

}  // namespace

void serve(const StubGroups& groups, const StubTimes& times) {
  Loop loop;
  std::vector<std::unique_ptr<Leader>> leaders;
  for (const int fd : groups.leaders) leaders.push_back(std::make_unique<Leader>(fd, loop, groups, times));
  loop.run([&] { return std::ranges::all_of(leaders, [](const auto& leader) { return leader->done(); }); });
}

}  // namespace tandem::stub
