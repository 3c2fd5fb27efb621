// Files to the GPU: threads copy pieces of mapped files into pinned buffers, of which each has two, so that one is
// filled while the other travels.
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/cuda/device_table.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr unsigned kMaxThreads = 8;  // more than keep the bus busy

struct Piece {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
};

std::vector<Piece> cut(std::span<const kernels::HostCopy> copies) {
  std::vector<Piece> pieces;
  for (const auto& [from, to] : copies) {
    check(to.is_cuda() && to.is_contiguous() && to.nbytes() == from.size(), "an upload does not fit its tensor");
    auto* out = static_cast<std::byte*>(to.data_ptr());
    for (size_t at = 0; at < from.size(); at += kPieceBytes)
      pieces.push_back({from.data() + at, out + at, std::min(kPieceBytes, from.size() - at)});
  }
  return pieces;
}

class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes) {
    void* memory = nullptr;
    launched(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinned memory");
    memory_.reset(static_cast<std::byte*>(memory));
    launched(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  ~PinnedBuffer() { cudaStreamDestroy(stream_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void send(const Piece& piece) {
    wait();  // for what it held before
    std::memcpy(memory_.get(), piece.from, piece.bytes);
    launched(cudaMemcpyAsync(piece.to, memory_.get(), piece.bytes, cudaMemcpyHostToDevice, stream_), "upload");
  }
  void wait() const { launched(cudaStreamSynchronize(stream_), "upload"); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

void upload(std::span<const kernels::HostCopy> copies) {
  const std::vector<Piece> pieces = cut(copies);
  if (pieces.empty()) return;
  int device = 0;
  launched(cudaGetDevice(&device), "device");
  launched(cudaStreamSynchronize(stream()), "synchronize");  // the tensors' memory may still be in use there
  std::atomic<size_t> next{0};
  std::mutex failing;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      launched(cudaSetDevice(device), "device");
      PinnedBuffer buffers[2] = {PinnedBuffer(kPieceBytes), PinnedBuffer(kPieceBytes)};
      size_t turn = 0;
      for (size_t i; (i = next.fetch_add(1)) < pieces.size();) buffers[turn++ % 2].send(pieces[i]);
      for (const PinnedBuffer& buffer : buffers) buffer.wait();
    } catch (...) {
      const std::lock_guard lock(failing);
      failure = std::current_exception();
    }
  };
  const auto wanted = std::min<size_t>({pieces.size(), kMaxThreads, std::max(1u, std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tandem::cuda
