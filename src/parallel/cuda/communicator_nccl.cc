#include "parallel/communicator_nccl.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "parallel/collectives.h"
#include "parallel/cuda/peer_processes.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kGoodbye = 5s;     // for NCCL to end a group
constexpr auto kPatience = 50ms;  // a transfer that takes longer is looked at less often
constexpr auto kNap = 100us;
constexpr auto kLookAround = 1ms;  // between two looks at the peers

cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw CommunicationError(std::string("GPU ") + what + ": " + cudaGetErrorString(error));
}

// Between two looks at what began then. Others of this process may run, but a sleep would cost more than most transfers
// take.
void pause_since(Clock::time_point begun) {
  if (Clock::now() - begun > kPatience) return std::this_thread::sleep_for(kNap);
  for (int i = 0; i < 8; ++i) std::this_thread::yield();
}

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// What the groups made of one another share: a failure of one ends the transfers of all.
struct Kin {
  explicit Kin(Timeout limit, Communicator& world) : timeout(limit), processes(world) {}
  Timeout timeout;
  PeerProcesses processes;  // by rank of the first group
  std::atomic<bool> failed{false};
};

// ncclCommAbort() frees the GPU from transfers that wait for a peer, but may itself wait for one that is gone.
void abandon(ncclComm_t group) {
  std::promise<void> done;
  std::future<void> over = done.get_future();
  std::thread([group, done = std::move(done)]() mutable {
    ncclCommAbort(group);
    done.set_value();
  }).detach();
  over.wait_for(kGoodbye);
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Kin> kin, std::vector<int> members)
      : Communicator(host->rank(), host->size()),
        host_(std::move(host)),
        kin_(std::move(kin)),
        members_(std::move(members)) {
    require(cudaEventCreateWithFlags(&through_, cudaEventDisableTiming), "event");
  }

  ~NcclCommunicator() override {
    cudaEventDestroy(through_);
    if (group_ == nullptr) return;
    const bool whole = !kin_->failed && std::uncaught_exceptions() == 0;
    if (whole && finalized()) {
      ncclCommDestroy(group_);
    } else {
      abandon(group_);
    }
  }

  std::unique_ptr<Communicator> split_off(std::span<const int> ranks) override {
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(members_.at(static_cast<size_t>(rank)));
    return std::make_unique<NcclCommunicator>(host_->split(ranks), kin_, std::move(members));
  }

  void copy_rows(std::byte* to, size_t to_pitch, const std::byte* from, size_t from_pitch, size_t width,
                 size_t height) const override {
    if (width == 0 || height == 0) return;
    if (!on_device(to) && !on_device(from))
      return Communicator::copy_rows(to, to_pitch, from, from_pitch, width, height);
    // One run has no pitch, and may be longer than the greatest.
    require(height == 1 ? cudaMemcpyAsync(to, from, width, cudaMemcpyDefault, stream())
                        : cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, cudaMemcpyDefault, stream()),
            "copy");
  }

 protected:
  void transfer(std::string_view operation, std::span<const SendPart> sends,
                std::span<const ReceivePart> receives) override {
    std::vector<SendPart> out, host_out;
    std::vector<ReceivePart> in, host_in;
    for (const SendPart& part : sends) (on_device(part.bytes.data()) ? out : host_out).push_back(part);
    for (const ReceivePart& part : receives) (on_device(part.bytes.data()) ? in : host_in).push_back(part);
    const bool between_gpus = !out.empty() || !in.empty();
    if (!host_out.empty() || !host_in.empty() || !between_gpus) host_->exchange(operation, host_out, host_in);
    if (between_gpus) transfer_on_device(operation, out, in);
  }

 private:
  static bool on_device(const void* memory) {
    cudaPointerAttributes found{};
    require(cudaPointerGetAttributes(&found, memory), "address");
    return found.type == cudaMemoryTypeDevice;
  }

  bool finalized() const {
    ncclResult_t state = ncclCommFinalize(group_);
    for (const auto deadline = Clock::now() + kGoodbye; state == ncclInProgress && Clock::now() < deadline;) {
      std::this_thread::sleep_for(kNap);
      if (ncclCommGetAsyncError(group_, &state) != ncclSuccess) return false;
    }
    return state == ncclSuccess;
  }

  void transfer_on_device(std::string_view operation, std::span<const SendPart> sends,
                          std::span<const ReceivePart> receives) {
    std::vector<int> peers;
    for (const ReceivePart& part : receives) peers.push_back(part.peer);
    for (const SendPart& part : sends) peers.push_back(part.peer);
    join();
    ncclResult_t first = ncclGroupStart();
    const auto give = [&](ncclResult_t result) {
      if (!failed(first) && failed(result)) first = result;
    };
    for (const ReceivePart& part : receives)
      give(ncclRecv(part.bytes.data(), part.bytes.size(), ncclInt8, part.peer, group_, stream()));
    for (const SendPart& part : sends)
      give(ncclSend(part.bytes.data(), part.bytes.size(), ncclInt8, part.peer, group_, stream()));
    const ncclResult_t ended = ncclGroupEnd();  // in any case: a group left open would take in what follows
    give(ended);
    if (failed(first)) give_up(operation, peers[0], describe(first));
    const auto begun = Clock::now();
    if (ended == ncclInProgress) wait_for_group(operation, peers, begun);  // what follows on the stream comes after
    require(cudaEventRecord(through_, stream()), "event");
    wait_for_transfer(operation, peers, begun);
  }

  // All ranks of the group come here at their first transfer between GPUs.
  void join() {
    if (group_ != nullptr) return;
    std::vector<int> peers;
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank()) peers.push_back(peer);
    const char* const operation = "joining of the GPUs";
    if (kin_->failed) fail(operation, peers[0], "is of no more use: another exchange has failed");
    ncclUniqueId id{};
    if (rank() == 0)
      if (const ncclResult_t made = ncclGetUniqueId(&id); failed(made)) give_up(operation, peers[0], describe(made));
    broadcast(*host_, operation, bytes_of(&id, 1), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto begun = Clock::now();
    const ncclResult_t state = ncclCommInitRankConfig(&group_, size(), id, rank(), &config);
    if (failed(state)) give_up(operation, peers[0], describe(state));
    wait_for_group(operation, peers, begun);
  }

  // Until what was asked of NCCL's threads is done.
  void wait_for_group(std::string_view operation, std::span<const int> peers, Clock::time_point begun) {
    auto looked = begun;
    for (;;) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(group_, &state);
      if (failed(asked) || failed(state))
        give_up(operation, ended(peers).value_or(peers[0]), describe(failed(asked) ? asked : state));
      if (state == ncclSuccess) return;
      look_around(operation, peers, begun, looked);
      pause_since(begun);
    }
  }

  void wait_for_transfer(std::string_view operation, std::span<const int> peers, Clock::time_point begun) {
    auto looked = begun;
    for (;;) {
      const cudaError_t state = cudaEventQuery(through_);
      if (state == cudaSuccess) return;
      cudaGetLastError();  // "not ready" would be taken for the next launch's error
      if (state != cudaErrorNotReady)
        give_up(operation, peers[0], std::string("cannot be reached: ") + cudaGetErrorString(state));
      look_around(operation, peers, begun, looked);
      pause_since(begun);
    }
  }

  void look_around(std::string_view operation, std::span<const int> peers, Clock::time_point begun,
                   Clock::time_point& looked) {
    const auto now = Clock::now();
    if (now - looked < kLookAround) return;
    looked = now;
    if (const auto gone = ended(peers)) give_up(operation, *gone, "died");
    ncclResult_t state = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(group_, &state); failed(asked) || failed(state))
      give_up(operation, peers[0], describe(failed(asked) ? asked : state));
    if (kin_->failed) give_up(operation, peers[0], "will not answer: another exchange has failed");
    if (now - begun > kin_->timeout)
      give_up(operation, peers[0], "did not come within " + std::to_string(kin_->timeout.count()) + " ms");
  }

  std::optional<int> ended(std::span<const int> peers) const {
    for (const int peer : peers)
      if (const int process = members_[static_cast<size_t>(peer)]; kin_->processes.ended({&process, 1})) return peer;
    return std::nullopt;
  }

  std::string describe(ncclResult_t result) const {
    std::string text = std::string("cannot be reached: NCCL: ") + ncclGetErrorString(result);
    if (const char* last = group_ != nullptr ? ncclGetLastError(group_) : nullptr; last != nullptr && *last != '\0')
      text += std::string("; ") + last;
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  [[noreturn]] void give_up(std::string_view operation, int peer, const std::string& why) {
    kin_->failed = true;
    if (group_ != nullptr) abandon(std::exchange(group_, nullptr));
    fail(operation, peer, why);
  }

  std::unique_ptr<Communicator> host_;
  std::shared_ptr<Kin> kin_;
  std::vector<int> members_;  // by rank: that of the first group
  ncclComm_t group_ = nullptr;
  cudaEvent_t through_ = nullptr;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Communicator* tandem_device_communicator(Communicator* host,
                                                                                           int64_t timeout_ms) {
  std::unique_ptr<Communicator> owned(host);
  // Multicast serves NCCL's own sums only, which are not used here: a group would hold memory for nothing.
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  const auto kin = std::make_shared<Kin>(Timeout(timeout_ms), *owned);
  std::vector<int> members;
  for (int rank = 0; rank < owned->size(); ++rank) members.push_back(rank);
  return std::make_unique<NcclCommunicator>(std::move(owned), kin, std::move(members)).release();
}

}  // namespace tandem
