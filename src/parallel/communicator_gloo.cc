#define USE_C10D_GLOO 1
#include "parallel/communicator_gloo.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace tandem {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Torch's errors carry a stack trace after the first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

GroupPtr make_group(const StorePtr& store, const std::string& host, int rank, int size, Timeout timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(host)};
  options->threads = 1;
  try {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  } catch (const std::exception& error) {
    throw CommunicationError(fmt::format("rank {} of {}: not all ranks joined within {} ms: {}", rank, size,
                                         timeout.count(), first_line(error.what())));
  }
}

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(int rank, int size, StorePtr store, std::string host, Timeout timeout)
      : Communicator(rank, size),
        store_(std::move(store)),
        host_(std::move(host)),
        timeout_(timeout),
        group_(size > 1 ? make_group(store_, host_, rank, size, timeout) : nullptr) {}

  std::unique_ptr<Communicator> split_off(std::span<const int> ranks) override {
    int place = -1;
    for (size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i] == rank()) place = static_cast<int>(i);
    check(place >= 0, "a rank is not in the group it asks for");
    const std::string name = fmt::format("{}/{}", num_splits_++, fmt::join(ranks, ","));
    return std::make_unique<GlooCommunicator>(place, static_cast<int>(ranks.size()),
                                              c10::make_intrusive<c10d::PrefixStore>(name, store_), host_, timeout_);
  }

 protected:
  void transfer(std::string_view operation, std::span<const SendPart> sends,
                std::span<const ReceivePart> receives) override {
    std::vector<std::pair<int, c10::intrusive_ptr<c10d::Work>>> pending;
    const auto start = [&](int peer, auto begin) {
      try {
        pending.emplace_back(peer, begin());
      } catch (const std::exception& error) {
        fail(operation, peer, "is gone: " + first_line(error.what()));
      }
    };
    // Gloo gives messages of one tag in order, so one tag is enough.
    for (const ReceivePart& part : receives) {
      std::vector<at::Tensor> tensor{view(part.bytes.data(), part.bytes.size())};
      start(part.peer, [&] { return group_->recv(tensor, part.peer, 0); });
    }
    for (const SendPart& part : sends) {
      std::vector<at::Tensor> tensor{view(const_cast<std::byte*>(part.bytes.data()), part.bytes.size())};
      start(part.peer, [&] { return group_->send(tensor, part.peer, 0); });
    }
    for (const auto& [peer, work] : pending) {
      try {
        work->wait(timeout_);
      } catch (const std::exception& error) {
        fail(operation, peer,
             fmt::format("died or did not come within {} ms: {}", timeout_.count(), first_line(error.what())));
      }
    }
  }

 private:
  static at::Tensor view(std::byte* data, size_t bytes) {
    return at::from_blob(data, {static_cast<int64_t>(bytes)}, at::kByte);
  }

  StorePtr store_;
  std::string host_;
  Timeout timeout_;
  GroupPtr group_;
  int64_t num_splits_ = 0;
};

c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string& host, uint16_t port, bool server, Timeout timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    throw CommunicationError(fmt::format("cannot {} the meeting point {}:{}: {}", server ? "open" : "reach", host, port,
                                         first_line(error.what())));
  }
}

}  // namespace

struct Rendezvous::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::string host;
  Timeout timeout;
};

Rendezvous::Rendezvous(std::shared_ptr<State> state) : state_(std::move(state)) {}
Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;
Rendezvous& Rendezvous::operator=(Rendezvous&&) noexcept = default;
Rendezvous::~Rendezvous() = default;

Rendezvous Rendezvous::serve(const std::string& host, uint16_t port, Timeout timeout) {
  return Rendezvous(std::make_shared<State>(State{open_store(host, port, true, timeout), host, timeout}));
}

Rendezvous Rendezvous::join(const std::string& host, uint16_t port, Timeout timeout) {
  return Rendezvous(std::make_shared<State>(State{open_store(host, port, false, timeout), host, timeout}));
}

void Rendezvous::arrive(int rank) const { state_->store->set(fmt::format("here/{}", rank), std::vector<uint8_t>{1}); }

bool Rendezvous::all_arrived(int size) const {
  std::vector<std::string> keys;
  for (int rank = 1; rank < size; ++rank) keys.push_back(fmt::format("here/{}", rank));
  return keys.empty() || state_->store->check(keys);
}

uint16_t Rendezvous::port() const { return state_->store->getPort(); }

std::unique_ptr<Communicator> Rendezvous::communicator(int rank, int size, const std::string& name,
                                                       std::optional<Timeout> timeout) const {
  return std::make_unique<GlooCommunicator>(rank, size, c10::make_intrusive<c10d::PrefixStore>(name, state_->store),
                                            state_->host, timeout.value_or(state_->timeout));
}

}  // namespace tandem
