#include "parallel/communicator_local.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

struct Posted {
  enum class State { kWaiting, kCopying, kDone } state = State::kWaiting;
  std::span<const std::byte> bytes;
};

// What every group made of one make_local_group() shares: a failure of a rank ends the exchanges of all.
struct Failure {
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  std::string reason;
};

struct Group {
  Group(int size, Timeout limit, std::shared_ptr<Failure> failure)
      : timeout(limit), shared(std::move(failure)), posted(static_cast<size_t>(size) * size), num_ranks(size) {}

  std::deque<Posted*>& queue(int from, int to) { return posted[static_cast<size_t>(from) * num_ranks + to]; }

  Timeout timeout;
  std::shared_ptr<Failure> shared;                                                  // its mutex guards all below
  std::vector<std::deque<Posted*>> posted;                                          // by sender and receiver
  std::map<std::pair<int64_t, std::vector<int>>, std::shared_ptr<Group>> children;  // by number of the split, ranks
  int num_ranks;
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(int rank, std::shared_ptr<Group> group)
      : Communicator(rank, group->num_ranks), group_(std::move(group)) {}

  std::unique_ptr<Communicator> split_off(std::span<const int> ranks) override {
    const std::vector<int> members(ranks.begin(), ranks.end());
    int place = -1;
    for (size_t i = 0; i < members.size(); ++i)
      if (members[i] == rank()) place = static_cast<int>(i);
    check(place >= 0, "a rank is not in the group it asks for");
    const std::lock_guard lock(group_->shared->mutex);
    auto& child = group_->children[{num_splits_++, members}];
    if (!child) child = std::make_shared<Group>(static_cast<int>(members.size()), group_->timeout, group_->shared);
    return std::make_unique<LocalCommunicator>(place, child);
  }

  void abandon(const std::string& reason) {
    const std::lock_guard lock(group_->shared->mutex);
    if (!group_->shared->failed) group_->shared->failed = true, group_->shared->reason = reason;
    group_->shared->changed.notify_all();
  }

 protected:
  void transfer(std::string_view operation, std::span<const SendPart> sends,
                std::span<const ReceivePart> receives) override {
    const auto deadline = Clock::now() + group_->timeout;
    std::vector<Posted> mine(sends.size());
    std::unique_lock lock(group_->shared->mutex);
    for (size_t i = 0; i < sends.size(); ++i) {
      mine[i].bytes = sends[i].bytes;
      group_->queue(rank(), sends[i].peer).push_back(&mine[i]);
    }
    group_->shared->changed.notify_all();
    try {
      for (const ReceivePart& part : receives) receive(lock, deadline, operation, part);
      for (size_t i = 0; i < mine.size(); ++i)
        wait(lock, deadline, operation, sends[i].peer, [&] { return mine[i].state == Posted::State::kDone; });
    } catch (...) {
      withdraw(lock, mine);
      throw;
    }
  }

 private:
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, std::string_view operation, int peer,
            Ready ready) {
    Failure& shared = *group_->shared;
    const bool came = shared.changed.wait_until(lock, deadline, [&] { return shared.failed || ready(); });
    if (came && ready()) return;
    if (shared.failed) fail(operation, peer, "will not answer, since " + shared.reason);
    const std::string why = "did not come within " + std::to_string(group_->timeout.count()) + " ms";
    if (!shared.failed) shared.failed = true, shared.reason = "rank " + std::to_string(peer) + " " + why;
    shared.changed.notify_all();
    fail(operation, peer, why);
  }

  void receive(std::unique_lock<std::mutex>& lock, Clock::time_point deadline, std::string_view operation,
               const ReceivePart& part) {
    auto& queue = group_->queue(part.peer, rank());
    wait(lock, deadline, operation, part.peer, [&] { return !queue.empty(); });
    Posted* from = queue.front();
    queue.pop_front();
    if (from->bytes.size() != part.bytes.size())
      fail(operation, part.peer,
           "sent " + std::to_string(from->bytes.size()) + " bytes where " + std::to_string(part.bytes.size()) +
               " were expected");
    from->state = Posted::State::kCopying;  // the sender stays until it is done, whatever happens
    lock.unlock();
    std::memcpy(part.bytes.data(), from->bytes.data(), part.bytes.size());
    lock.lock();
    from->state = Posted::State::kDone;
    group_->shared->changed.notify_all();
  }

  // Takes back what nobody received, so that no pointer to this rank's memory is left behind.
  void withdraw(std::unique_lock<std::mutex>& lock, std::vector<Posted>& mine) {
    for (int peer = 0; peer < size(); ++peer) {
      auto& queue = group_->queue(rank(), peer);
      std::erase_if(queue, [&](Posted* p) { return p >= mine.data() && p < mine.data() + mine.size(); });
    }
    for (Posted& part : mine) group_->shared->changed.wait(lock, [&] { return part.state != Posted::State::kCopying; });
  }

  std::shared_ptr<Group> group_;
  int64_t num_splits_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_group(int size, Timeout timeout) {
  const auto group = std::make_shared<Group>(size, timeout, std::make_shared<Failure>());
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(std::make_unique<LocalCommunicator>(rank, group));
  return all;
}

void run_ranks(int size, const std::function<void(Communicator&)>& fn, Timeout timeout) {
  const auto group = make_local_group(size, timeout);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    try {
      fn(*group[static_cast<size_t>(rank)]);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      static_cast<LocalCommunicator&>(*group[static_cast<size_t>(rank)])
          .abandon("rank " + std::to_string(rank) + " failed: " + error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tandem
