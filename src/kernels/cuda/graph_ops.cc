// A recorded decode pass: inputs and outputs at fixed addresses, the kernels between them in a CUDA graph. Arrays have
// room for the graph's capacity; counts on the device say how much of it is in use.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <exception>

#include "kernels/cuda/batch.h"
#include "kernels/cuda/device_table.h"
#include "kernels/cuda/draw.h"
#include "kernels/cuda/torch_args.h"

namespace tandem::cuda {
namespace {

// Arrays in pinned memory with a twin on the device.
class Mirror {
 public:
  template <class T>
  size_t reserve(int64_t count) {
    const size_t offset = (size_ + 15) / 16 * 16;
    size_ = offset + static_cast<size_t>(count) * sizeof(T);
    return offset;
  }
  void allocate() {
    void* pinned = nullptr;
    launched(cudaHostAlloc(&pinned, size_, cudaHostAllocDefault), "pinned memory");
    host_.reset(static_cast<std::byte*>(pinned));
    std::memset(pinned, 0, size_);
    device_ = device_bytes(static_cast<int64_t>(size_));
  }
  template <class T>
  std::span<T> host(size_t offset, int64_t count) const {
    return {reinterpret_cast<T*>(host_.get() + offset), static_cast<size_t>(count)};
  }
  template <class T>
  T* device(size_t offset) const {
    return at_offset<T>(device_, offset);
  }
  void send() const {
    launched(cudaMemcpyAsync(device_.data_ptr(), host_.get(), size_, cudaMemcpyHostToDevice, stream()), "upload");
  }

 private:
  struct Free {
    void operator()(std::byte* pinned) const { cudaFreeHost(pinned); }
  };
  size_t size_ = 0;
  std::unique_ptr<std::byte, Free> host_;
  at::Tensor device_;
};

// One for all graphs: a stream that has run products keeps their workspace.
c10::cuda::CUDAStream recording_stream() {
  static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  return stream;
}

class Graph : public kernels::DecodeGraph {
 public:
  Graph(const kernels::DecodeGraphShape& shape, const std::function<at::Tensor(const PlacedBatch&)>& pass)
      : shape_(shape),
        head_group_(static_cast<int32_t>(shape.heads.num_heads / shape.heads.num_kv_heads)),
        capacity_(decode_capacity(shape.sequences, shape.sequences * shape.blocks_per_sequence * kKvPage)),
        side_stream_(recording_stream()) {
    lay_out();
    place();
    record(pass);
  }

  void replay(const kernels::TokenBatch& batch, std::span<const kernels::DrawRow> rows,
              std::span<kernels::Drawn> out) override {
    fill(batch, rows);
    mirror_.send();
    graph_.replay();
    const int64_t n = shape_.sequences;
    launched(cudaMemcpyAsync(results_.data(), outputs_.data_ptr(), static_cast<size_t>(3 * n) * sizeof(float),
                             cudaMemcpyDeviceToHost, stream()),
             "download");
    launched(cudaStreamSynchronize(stream()), "synchronize");
    read_drawn(results_.data(), n, out);
  }

 private:
  void lay_out() {
    const int64_t n = shape_.sequences;
    ids_ = mirror_.reserve<int32_t>(n), positions_ = mirror_.reserve<int32_t>(n), slots_ = mirror_.reserve<int32_t>(n);
    pages_ = mirror_.reserve<int32_t>(n * shape_.blocks_per_sequence);
    items_ = mirror_.reserve<DecodeItem>(capacity_.items), members_ = mirror_.reserve<DecodeMember>(capacity_.members);
    ranges_ = mirror_.reserve<SlotRange>(n), counts_ = mirror_.reserve<DecodeCounts>(1);
    draw_rows_ = mirror_.reserve<SamplingRow>(n), inverse_ = mirror_.reserve<float>(n);
    draw_positions_ = mirror_.reserve<int32_t>(n), barred_ = mirror_.reserve<int32_t>(n * kMaxBarredIds);
    mirror_.allocate();
    results_.resize(static_cast<size_t>(3 * n));
  }

  void place() {
    const auto n = static_cast<size_t>(shape_.sequences);
    tokens_.ids.assign(n, 0), tokens_.positions.assign(n, 0);
    batch_ = std::make_shared<Batch>();
    batch_->ids = mirror_.device<int32_t>(ids_), batch_->positions = mirror_.device<int32_t>(positions_);
    batch_->slots = mirror_.device<int32_t>(slots_), batch_->page_table = mirror_.device<int32_t>(pages_);
    batch_->num_decode = static_cast<int32_t>(n), batch_->decode = capacity_;
    batch_->decode_items = mirror_.device<DecodeItem>(items_);
    batch_->decode_members = mirror_.device<DecodeMember>(members_);
    batch_->decode_slots = mirror_.device<SlotRange>(ranges_);
    batch_->decode_counts = mirror_.device<DecodeCounts>(counts_);
  }

  void record(const std::function<at::Tensor(const PlacedBatch&)>& pass) {
    const PlacedBatch placed{tokens_, kernels::KeyLayout::kPaged, batch_};
    const DrawInputs draws{mirror_.device<SamplingRow>(draw_rows_), mirror_.device<float>(inverse_),
                           mirror_.device<int32_t>(draw_positions_), mirror_.device<int32_t>(barred_)};
    std::ranges::fill(mirror_.host<int32_t>(slots_, shape_.sequences), -1);  // nothing is stored
    mirror_.send();
    launched(cudaDeviceSynchronize(), "synchronize");
    const c10::cuda::CUDAStreamGuard guard(side_stream_);
    const auto run = [&] { return launch_draw(pass(placed), shape_.num_drawable, draws, shape_.narrowing); };
    run();  // workspaces of the stream are made before recording
    launched(cudaStreamSynchronize(stream()), "synchronize");
    const Capture capture(graph_);
    outputs_ = run();
  }

  // Ends the recording also when the pass throws: a stream left recording would fail everything after it.
  class Capture {
   public:
    explicit Capture(at::cuda::CUDAGraph& graph) : graph_(graph) { graph_.capture_begin(); }
    Capture(const Capture&) = delete;
    ~Capture() noexcept(false) {
      if (std::uncaught_exceptions() == exceptions_) {
        graph_.capture_end();
        return;
      }
      try {
        graph_.capture_end();
      } catch (...) {  // what the pass threw says more
      }
    }

   private:
    at::cuda::CUDAGraph& graph_;
    int exceptions_ = std::uncaught_exceptions();
  };

  void fill(const kernels::TokenBatch& batch, std::span<const kernels::DrawRow> rows) {
    const int64_t n = shape_.sequences, used = batch.num_tokens();
    check(used <= n && static_cast<int64_t>(rows.size()) == used, "more sequences than the recorded pass has room for");
    std::ranges::copy(batch.ids, mirror_.host<int32_t>(ids_, n).begin());
    std::ranges::copy(batch.positions, mirror_.host<int32_t>(positions_, n).begin());
    const auto slots = mirror_.host<int32_t>(slots_, n);
    std::ranges::fill(slots, -1);
    for (int64_t i = 0; i < used; ++i) slots[i] = batch.writes[i].slot;
    const auto& tables = batch.attention.block_tables;
    const auto pages = mirror_.host<int32_t>(pages_, n * shape_.blocks_per_sequence);
    check(tables.size() <= pages.size(), "longer block tables than the recorded pass has room for");
    std::ranges::copy(tables, pages.begin());
    std::vector<DecodeSequence> sequences;
    for (const auto& span : batch.attention.spans)
      sequences.push_back({span.first_block, span.first_position + 1, tables[span.first_block]});
    const DecodeSizes sizes =
        plan_decode(sequences, tables, head_group_,
                    {mirror_.host<DecodeItem>(items_, capacity_.items),
                     mirror_.host<DecodeMember>(members_, capacity_.members), mirror_.host<SlotRange>(ranges_, used)});
    mirror_.host<DecodeCounts>(counts_, 1)[0] = {sizes.items, static_cast<int32_t>(used)};

    const DrawArrays draws = draw_arrays(rows);
    check(!draws.narrowing || shape_.narrowing, "the recorded pass draws from whole distributions only");
    std::ranges::copy(draws.rows, mirror_.host<SamplingRow>(draw_rows_, n).begin());
    const auto inverse = mirror_.host<float>(inverse_, n);
    std::ranges::fill(inverse, 1.0f);
    std::ranges::copy(draws.inverse_temperature, inverse.begin());
    std::ranges::copy(draws.positions, mirror_.host<int32_t>(draw_positions_, n).begin());
    std::ranges::copy(draws.barred, mirror_.host<int32_t>(barred_, n * kMaxBarredIds).begin());
  }

  kernels::DecodeGraphShape shape_;
  int32_t head_group_;
  DecodeSizes capacity_;
  Mirror mirror_;
  size_t ids_, positions_, slots_, pages_, items_, members_, ranges_, counts_, draw_rows_, inverse_, draw_positions_,
      barred_;
  kernels::TokenBatch tokens_;
  std::shared_ptr<Batch> batch_;
  at::Tensor outputs_;
  std::vector<float> results_;
  c10::cuda::CUDAStream side_stream_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<kernels::DecodeGraph> record_decode(const kernels::DecodeGraphShape& shape,
                                                    const std::function<at::Tensor(const PlacedBatch&)>& pass) {
  return std::make_unique<Graph>(shape, pass);
}

}  // namespace tandem::cuda
