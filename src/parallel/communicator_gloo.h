// Processes as ranks: Gloo's point-to-point transfers over TCP, out of the torch wheel.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "parallel/communicator.h"

namespace tandem {

// The place where the processes of a run find each other. Rank 0 holds the server; it must outlive the others' joining.
class Rendezvous {
 public:
  // port 0: a free one, see port().
  static Rendezvous serve(const std::string& host = "127.0.0.1", uint16_t port = 0, Timeout timeout = kDefaultTimeout);
  static Rendezvous join(const std::string& host, uint16_t port, Timeout timeout = kDefaultTimeout);
  Rendezvous(Rendezvous&&) noexcept;
  Rendezvous& operator=(Rendezvous&&) noexcept;
  ~Rendezvous();

  uint16_t port() const;
  // Says that this rank is here; and whether ranks 1 … size − 1 have said so.
  void arrive(int rank) const;
  bool all_arrived(int size) const;
  // A group of all `size` processes; called once by each for a name. CommunicationError when one does not come in time.
  // `timeout` of its exchanges; nothing: the meeting point's own.
  std::unique_ptr<Communicator> communicator(int rank, int size, const std::string& name = "world",
                                             std::optional<Timeout> timeout = {}) const;

 private:
  struct State;
  explicit Rendezvous(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace tandem
