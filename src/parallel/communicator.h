// How ranks talk: one primitive, `exchange`, a set of point-to-point transfers that all ranks of a group enter
// together. Everything else (collectives.h, reshard.h) is built of it, so that bits, order and counted bytes are the
// same on threads and on processes. Torch-free. Thread-safety: one exchange at a time on a communicator; what runs
// beside another takes a communicator of its own (split). Errors: CommunicationError naming this rank, the operation
// and the peer when a peer died, left or did not come within the timeout; the communicator and all of its kin are then
// of no more use.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "parallel/in_flight.h"

namespace tandem {

class CommunicationError : public Error {
 public:
  using Error::Error;
};

// What this rank took part in; copies within a rank count nothing. Bytes are those that crossed between ranks.
struct Traffic {
  int64_t calls = 0, bytes_sent = 0, bytes_received = 0;
};

struct SendPart {
  int peer;
  std::span<const std::byte> bytes;
};
struct ReceivePart {
  int peer;
  std::span<std::byte> bytes;
};

// One exchange between ranks as this rank saw it.
struct Exchanged {
  std::string_view operation;
  std::chrono::steady_clock::time_point begin, end;
  int64_t bytes_sent, bytes_received;
};
using ExchangeObserver = std::function<void(const Exchanged&)>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Parts from one rank to another arrive in the order in which both sides list them, with equal lengths. Parts to
  // oneself are copied. Empty parts are left out. Returns when all of this rank's parts are through. Parts may lie on a
  // device where the communicator is of devices (communicator_nccl.h), on both sides then.
  void exchange(std::string_view operation, std::span<const SendPart> sends, std::span<const ReceivePart> receives);

  // A communicator of its own among `ranks` (of this one, ascending, this rank among them). All ranks call it together,
  // each with its own group's list.
  std::unique_ptr<Communicator> split(std::span<const int> ranks);
  std::unique_ptr<Communicator> duplicate();

  // Exchanges of this one, and of those split off from now on, are told to `where`; null: to nobody.
  void show_in(std::shared_ptr<InFlight> where) { in_flight_ = std::move(where); }

  // Within this rank, `height` runs of `width` bytes, from and to memory where they begin so many bytes apart.
  virtual void copy_rows(std::byte* to, size_t to_pitch, const std::byte* from, size_t from_pitch, size_t width,
                         size_t height) const;

  // Tells it of every exchange from here on, those of later splits included; called by the threads that exchange.
  void observe(std::shared_ptr<const ExchangeObserver> observer) { observer_ = std::move(observer); }

  const Traffic& traffic() const { return traffic_; }
  void reset_traffic() { traffic_ = {}; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  // Only parts between this rank and others, none of them empty.
  virtual void transfer(std::string_view operation, std::span<const SendPart> sends,
                        std::span<const ReceivePart> receives) = 0;
  virtual std::unique_ptr<Communicator> make_part(std::span<const int> ranks) = 0;
  [[noreturn]] void fail(std::string_view operation, int peer, std::string_view why) const;

 private:
  int rank_, size_;
  Traffic traffic_;
  std::shared_ptr<const ExchangeObserver> observer_;
  std::shared_ptr<InFlight> in_flight_;
};

// For errors a user reads: how long a rank waits for its peers.
using Timeout = std::chrono::milliseconds;
inline constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

template <class T>
std::span<std::byte> bytes_of(T* data, size_t count) {
  return std::as_writable_bytes(std::span(data, count));
}
template <class T>
std::span<const std::byte> bytes_of(const T* data, size_t count) {
  return std::as_bytes(std::span(data, count));
}

}  // namespace tandem
