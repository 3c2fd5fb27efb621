#include "app/bench_kernels.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "app/roofline.h"
#include "base/rng.h"
#include "kernels/device_ops.h"
#include "model/model_config.h"

namespace tandem {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

class KernelBench {
 public:
  explicit KernelBench(const BenchArguments& a)
      : c_(load_model_config(a.model)),
        tokens_(a.micro_tokens),
        rows_(a.prompts * a.samples),
        length_(std::min(a.micro_tokens, a.prompt_tokens + a.new_tokens)),
        like_(like(at::Device(a.device))) {
    if (!like_.is_cpu()) print(ceilings_ = measure_ceilings(like_));
  }

  void run() {
    norms();
    products("training", tokens_);
    products("decode", rows_);
    gates();
    attention();
    logits();
    optimizer();
  }

 private:
  static at::Tensor like(at::Device device) {
    if (device.is_cpu()) return kernels::empty({1});
    device_ops();
    return kernels::empty({1}).to(at::device(device).dtype(at::kBFloat16));
  }
  at::Tensor random(at::IntArrayRef shape) const { return kernels::empty(shape, like_).normal_(0.0, 0.5); }
  at::Tensor single(at::IntArrayRef shape) const { return empty_fp32(shape, like_).normal_(0.0, 0.5); }
  double value_bytes() const { return static_cast<double>(like_.element_size()); }

  void time(const std::string& name, double bytes, double flops, const std::function<void()>& run) const {
    constexpr int kTimes = 10;
    for (int i = 0; i < 2; ++i) run();
    synchronize(like_);
    const auto start = Clock::now();
    for (int i = 0; i < kTimes; ++i) run();
    synchronize(like_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / kTimes;
    fmt::print(R"({{"name": "{}", "us": {:.1f}, "gb_per_s": {:.1f}, "tflop_s": {:.2f})", name, seconds * 1e6,
               bytes / seconds / 1e9, flops / seconds / 1e12);
    if (ceilings_.bytes_per_second > 0)
      fmt::print(R"(, "of_floor": {:.3f})",
                 std::max(bytes / ceilings_.bytes_per_second, flops / ceilings_.flops_per_second) / seconds);
    fmt::print("}}\n");
    std::fflush(stdout);
  }

  void norms() {
    const at::Tensor weight = random({c_.hidden_size}), y = random({tokens_, c_.hidden_size});
    at::Tensor x = random({tokens_, c_.hidden_size}), out = random({tokens_, c_.hidden_size}),
               dweight = single({c_.hidden_size});
    const double bytes = static_cast<double>(x.numel()) * value_bytes();
    time("rms_norm", 2 * bytes, 0, [&] { rms_norm(x, weight, 1e-6f, out); });
    time("add_rms_norm", 4 * bytes, 0, [&] { add_rms_norm(x, y, weight, 1e-6f, out); });
    time("rms_norm_backward", 4 * bytes, 0, [&] { rms_norm_backward(y, x, weight, 1e-6f, out, dweight); });
  }

  void products(const char* phase, int64_t rows) {
    const std::vector<std::tuple<const char*, int64_t, int64_t>> shapes{
        {"qkv", c_.q_size() + 2 * c_.kv_size(), c_.hidden_size},
        {"o", c_.hidden_size, c_.q_size()},
        {"gate_up", 2 * c_.intermediate_size, c_.hidden_size},
        {"down", c_.hidden_size, c_.intermediate_size}};
    for (const auto& [name, outer, inner] : shapes) {
      const at::Tensor x = random({rows, inner}), weight = random({outer, inner});
      at::Tensor out = random({rows, outer});
      const double flops = 2.0 * static_cast<double>(rows * outer) * static_cast<double>(inner);
      const double bytes = value_bytes() * static_cast<double>(rows * (inner + outer) + inner * outer);
      time(fmt::format("{} {}", name, phase), bytes, flops, [&] { linear(x, weight, {}, out); });
      if (rows != tokens_) continue;
      at::Tensor dx = random({rows, inner}), dweight = single({outer, inner}), no_bias;
      time(fmt::format("{} backward, input", name), bytes, flops, [&] { linear_backward_input(out, weight, dx); });
      time(fmt::format("{} backward, weight", name), bytes, flops,
           [&] { linear_backward_weight(out, x, dweight, no_bias); });
    }
  }

  void gates() {
    const int64_t f = c_.intermediate_size;
    const at::Tensor gate_up = random({tokens_, 2 * f}), dout = random({tokens_, f});
    at::Tensor out = random({tokens_, f}), d = random({tokens_, 2 * f});
    const double bytes = value_bytes() * static_cast<double>(tokens_ * f);
    time("swiglu", 3 * bytes, 0, [&] { swiglu(gate_up, out); });
    time("swiglu_backward", 6 * bytes, 0, [&] { swiglu_backward(dout, gate_up, d, out); });
  }

  // Whole sequences of one length, each on its own.
  TokenBatch sequences() const {
    TokenBatch batch;
    for (int64_t s = 0; s < tokens_ / length_; ++s) {
      const auto first = static_cast<int32_t>(batch.ids.size());
      batch.attention.spans.push_back(
          {first, static_cast<int32_t>(length_), 0, static_cast<int32_t>(batch.attention.block_tables.size())});
      for (int32_t p = 0; p < length_; ++p) {
        if (p % kKvBlock == 0) batch.attention.block_tables.push_back(static_cast<int32_t>(batch.num_blocks++));
        batch.ids.push_back(0), batch.positions.push_back(p);
        batch.writes.push_back({first + p, batch.attention.block_tables.back() * kKvBlock + p % kKvBlock});
      }
    }
    return batch;
  }

  void attention() {
    const HeadShape heads{c_.num_attention_heads, c_.num_key_value_heads, c_.head_dim};
    const TokenBatch batch = sequences();
    const int64_t tokens = batch.num_tokens(), width = c_.q_size() + 2 * c_.kv_size();
    const at::Tensor qkv = random({tokens, width}), norm = c_.qk_norm ? random({c_.head_dim}) : at::Tensor();
    const QkvTransform transform{
        heads, norm, norm, 1e-6f, single({length_, c_.head_dim / 2}), single({length_, c_.head_dim / 2})};
    const PlacedBatch placed = place(batch, KeyLayout::kPacked, heads, qkv);
    at::Tensor kv = packed_kv(placed, heads, qkv), out = random({tokens, heads.num_heads, heads.head_dim}),
               logsumexp = single({tokens, heads.num_heads}), dqkv = random({tokens, width});
    at::Tensor dq = c_.qk_norm ? single({c_.head_dim}) : at::Tensor(), dk = c_.qk_norm ? single({c_.head_dim}) : dq;
    const at::Tensor dout = random(out.sizes());
    const double forward = 2.0 * static_cast<double>(tokens * length_) * static_cast<double>(c_.q_size());
    const double bytes = value_bytes() * static_cast<double>(tokens * (width + c_.q_size()));
    time("attention, packed", bytes, forward, [&] { attend(qkv, transform, placed, kv, out, logsumexp); });
    time("attention backward", 2 * bytes, 2.5 * forward,
         [&] { attend_backward(dout, qkv, transform, placed, kv, out, logsumexp, dqkv, dq, dk); });
  }

  void logits() {
    const int64_t rows = std::min<int64_t>(rows_, 2048), vocab = c_.vocab_size;
    const at::Tensor x = random({rows, c_.hidden_size}), head = random({vocab, c_.hidden_size});
    at::Tensor out = single({rows, vocab});
    const auto values = static_cast<double>(rows * vocab);
    time("logits", 4 * values + value_bytes() * static_cast<double>(head.numel()),
         2 * values * static_cast<double>(c_.hidden_size), [&] { linear(x, head, {}, out); });
    const std::vector<float> inverse(static_cast<size_t>(rows), 1.0f);
    std::vector<LogitTarget> targets;
    std::vector<DrawRow> wanted;
    for (int32_t r = 0; r < rows; ++r) {
      targets.push_back({r, r % 1000});
      wanted.push_back({1, 2, static_cast<uint32_t>(r), 0, 1.0f, false, -1, 1, 0, {}});
    }
    std::vector<TargetStats> stats(targets.size());
    const std::vector<TargetSlopes> slopes(targets.size(), {1.0, 0.0});
    LogitStats kept;
    time("target_logprobs", 4 * values, 0, [&] { target_logprobs(out, inverse, targets, true, kept, stats); });
    if (!like_.is_cpu()) {
      std::vector<Drawn> drawn(wanted.size());
      time("draw", 4 * values, 0, [&] { draw(out, vocab, wanted, drawn); });
    }
    time("target_logprobs_backward", (4 + value_bytes()) * values, 0,
         [&] { target_logprobs_backward(out, inverse, targets, kept, slopes); });
  }

  void optimizer() {
    const int64_t count = int64_t{64} << 20;
    const at::Tensor gradient = single({count});
    const AdamWTensors all{gradient, single({count}), single({count}), single({count}).abs_(),
                           like_.is_cpu() ? at::Tensor() : random({count})};
    const double bytes = 4 * static_cast<double>(count);
    time("adamw", 7 * bytes + (like_.is_cpu() ? 0 : bytes / 2), 0, [&] {
      adamw({1e-6, 0.9, 0.999, 1e-8, 0.01, 1, 1.0}, {&all, 1});
    });
    time("sum_of_squares", bytes, 0, [&] { sum_of_squares({&gradient, 1}); });
  }

  const ModelConfig c_;
  const int64_t tokens_, rows_, length_;
  const at::Tensor like_;
  Ceilings ceilings_;
};

}  // namespace

void bench_kernels(const BenchArguments& arguments) { KernelBench(arguments).run(); }

}  // namespace tandem
