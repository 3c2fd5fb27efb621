// Every op of kernels.h on a GPU against the CPU's fp32, from the same inputs rounded to bf16: what the device's side
// makes of tensors, shapes and options. Skipped where there is no GPU. Bounds are those of bf16 (8 bits) outputs with
// fp32 sums.
#include <ATen/ops/empty.h>

#include <numeric>

#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/reference.h"

namespace tandem::kernels {
namespace {

constexpr double kBf16 = 6e-3;  // norm-wise: half a step of 2^-8, twice rounded
constexpr double kFp32 = 2e-5;

class DeviceOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = choose_device("cuda");
    } catch (const ConfigError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  static at::Tensor rounded(at::IntArrayRef shape, uint64_t stream, double scale = 1) {
    return random_tensor(shape, stream, scale).to(at::kBFloat16).to(at::kFloat);
  }
  at::Tensor half(const at::Tensor& tensor) const { return tensor.to(at::device(device_).dtype(at::kBFloat16)); }
  at::Tensor single(const at::Tensor& tensor) const { return tensor.to(at::device(device_).dtype(at::kFloat)); }
  at::Tensor half_empty(at::IntArrayRef shape) const { return half(filled(shape, NAN)); }

  static void expect_close(const at::Tensor& got, const at::Tensor& wanted, double tolerance, const char* what) {
    const at::Tensor host = got.to(at::device(at::kCPU).dtype(at::kFloat)).contiguous();
    ASSERT_EQ(host.numel(), wanted.numel()) << what;
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < wanted.numel(); ++i) {
      const double d = double{floats(host)[i]} - floats(wanted)[i];
      difference += d * d, norm += double{floats(wanted)[i]} * floats(wanted)[i];
    }
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + 1e-12) << what;
  }

  // Sequences of their own, packed or as one prefill into a cache.
  static TokenBatch batch_of(const std::vector<int32_t>& lengths, int32_t vocab) {
    TokenBatch batch;
    Philox random(5);
    int32_t block = 1;
    for (const int32_t length : lengths) {
      const auto first = static_cast<int32_t>(batch.ids.size());
      batch.attention.spans.push_back({first, length, 0, static_cast<int32_t>(batch.attention.block_tables.size())});
      for (int32_t p = 0; p < length; ++p) {
        if (p % kKvBlock == 0) batch.attention.block_tables.push_back(block++);
        batch.ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
        batch.positions.push_back(p);
        batch.writes.push_back({first + p, batch.attention.block_tables.back() * kKvBlock + p % kKvBlock});
      }
    }
    batch.num_blocks = block;
    return batch;
  }

  at::Device device_ = at::kCPU;
};

TEST_F(DeviceOpsTest, UploadBringsEveryByte) {
  const at::Tensor large = random_tensor({5, 1 << 20}, 1), small = random_tensor({3}, 2);
  const at::Tensor to_large = single(filled({5, 1 << 20}, 0)), to_small = single(filled({3}, 0));
  const auto bytes = [](const at::Tensor& t) { return std::as_bytes(floats(t)); };
  upload(std::vector<HostCopy>{{bytes(large), to_large}, {bytes(small), to_small}});
  EXPECT_TRUE(same_bits(floats(to_large.cpu()), floats(large)));
  EXPECT_TRUE(same_bits(floats(to_small.cpu()), floats(small)));
}

TEST_F(DeviceOpsTest, EmbeddingAndRows) {
  const TokenBatch batch = batch_of({17, 40, 1}, 50);
  const HeadShape heads{4, 2, 64};
  const at::Tensor weight = rounded({50, 96}, 1), dout = rounded({58, 96}, 2);
  const at::Tensor weight_d = half(weight);
  const PlacedBatch host = place(batch, KeyLayout::kPacked, heads, weight),
                    placed = place(batch, KeyLayout::kPacked, heads, weight_d);
  at::Tensor out = empty({58, 96}), out_d = half_empty({58, 96});
  embedding(host, weight, out), embedding(placed, weight_d, out_d);
  expect_close(out_d, out, 0, "embedding");
  at::Tensor dweight = filled({50, 96}, 0.25f), dweight_d = single(dweight);
  embedding_backward(host, dout, dweight), embedding_backward(placed, half(dout), dweight_d);
  expect_close(dweight_d, dweight, kFp32, "embedding backward");

  const std::vector<int32_t> rows{3, 57, 0, 3, 20};
  at::Tensor some = empty({5, 96}), some_d = half_empty({5, 96});
  gather_rows(out, rows, some), gather_rows(out_d, rows, some_d);
  expect_close(some_d, some, 0, "gather_rows");
  const at::Tensor dsome = rounded({5, 96}, 4);
  at::Tensor dx = rounded({58, 96}, 5), dx_d = half(dx);
  gather_rows_backward(dsome, rows, dx), gather_rows_backward(half(dsome), rows, dx_d);
  expect_close(dx_d, dx, kBf16, "gather_rows backward");
}

TEST_F(DeviceOpsTest, Norms) {
  for (const int64_t width : {64, 576, 1024, 4096}) {
    const int64_t tokens = 37;
    const at::Tensor x = rounded({tokens, width}, 1, 3), y = rounded({tokens, width}, 2), weight = rounded({width}, 3),
                     dout = rounded({tokens, width}, 4);
    at::Tensor out = empty({tokens, width}), out_d = half_empty({tokens, width});
    rms_norm(x, weight, 1e-5f, out), rms_norm(half(x), half(weight), 1e-5f, out_d);
    expect_close(out_d, out, kBf16, "rms_norm");
    at::Tensor sum = x.clone(), sum_d = half(x);
    add_rms_norm(sum, y, weight, 1e-5f, out), add_rms_norm(sum_d, half(y), half(weight), 1e-5f, out_d);
    expect_close(sum_d, sum, kBf16, "x + y");
    expect_close(out_d, out, kBf16, "add_rms_norm");
    at::Tensor dx = y.clone(), dx_d = half(y), dweight = filled({width}, 0.5f), dweight_d = single(dweight);
    rms_norm_backward(dout, x, weight, 1e-5f, dx, dweight);
    rms_norm_backward(half(dout), half(x), half(weight), 1e-5f, dx_d, dweight_d);
    expect_close(dx_d, dx, kBf16, "rms_norm dx");
    expect_close(dweight_d, dweight, 1e-4, "rms_norm dweight");
  }
}

TEST_F(DeviceOpsTest, ProductsOfManyShapes) {
  for (const auto& [tokens, inner, outer] : std::vector<std::array<int64_t, 3>>{
           {1, 64, 128}, {7, 576, 960}, {200, 1536, 576}, {33, 16, 576}, {65, 576, 16}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inner << " x " << outer);
    const double scale = 1 / std::sqrt(static_cast<double>(inner));
    const at::Tensor x = rounded({tokens, inner}, 1), weight = rounded({outer, inner}, 2, scale),
                     bias = rounded({outer}, 3), dout = rounded({tokens, outer}, 4);
    at::Tensor out = empty({tokens, outer}), out_d = half_empty({tokens, outer}),
               logits_d = single(filled({tokens, outer}, NAN));
    linear(x, weight, bias, out), linear(half(x), half(weight), half(bias), out_d);
    expect_close(out_d, out, kBf16, "with a bias");
    linear(x, weight, {}, out), linear(half(x), half(weight), {}, out_d), linear(half(x), half(weight), {}, logits_d);
    expect_close(out_d, out, kBf16, "without");
    expect_close(logits_d, out, kFp32, "fp32 out");
    at::Tensor dx = empty({tokens, inner}), dx_d = half_empty({tokens, inner});
    linear_backward_input(dout, weight, dx), linear_backward_input(half(dout), half(weight), dx_d);
    expect_close(dx_d, dx, kBf16, "dx");
    at::Tensor dweight = filled({outer, inner}, 0.5f), dweight_d = single(dweight), dbias = filled({outer}, 1),
               dbias_d = single(dbias);
    linear_backward_weight(dout, x, dweight, dbias), linear_backward_weight(half(dout), half(x), dweight_d, dbias_d);
    expect_close(dweight_d, dweight, kFp32, "dweight");
    expect_close(dbias_d, dbias, kFp32, "dbias");
  }
}

TEST_F(DeviceOpsTest, SumsAndColumns) {
  at::Tensor x = rounded({40, 96}, 1), y = rounded({40, 96}, 2), x_d = half(x);
  add(x, y), add(x_d, half(y));
  expect_close(x_d, x, kBf16, "add");
  x = rounded({40, 96}, 3), x_d = half(x);
  const at::Tensor part = rounded({40, 32}, 4);
  add_to_columns(x, 48, 0.5f, part), add_to_columns(x_d, 48, 0.5f, half(part));
  expect_close(x_d, x, kBf16, "add_to_columns");
  at::Tensor taken = empty({40, 32}), taken_d = half_empty({40, 32});
  take_columns(y, 16, 2.0f, taken), take_columns(half(y), 16, 2.0f, taken_d);
  expect_close(taken_d, taken, 0, "take_columns");
}

TEST_F(DeviceOpsTest, SwiGlu) {
  const at::Tensor gate_up = rounded({37, 2 * 136}, 1, 2), dout = rounded({37, 136}, 2);
  at::Tensor out = empty({37, 136}), out_d = half_empty({37, 136});
  swiglu(gate_up, out), swiglu(half(gate_up), out_d);
  expect_close(out_d, out, kBf16, "swiglu");
  at::Tensor d = empty({37, 272}), d_d = half_empty({37, 272}), again = empty({37, 136}),
             again_d = half_empty({37, 136});
  swiglu_backward(dout, gate_up, d, again), swiglu_backward(half(dout), half(gate_up), d_d, again_d);
  expect_close(d_d, d, kBf16, "swiglu backward");
  EXPECT_TRUE(again_d.equal(out_d)) << "the output given again";
}

TEST_F(DeviceOpsTest, AttentionPackedAndBack) {
  for (const HeadShape& heads : {HeadShape{4, 2, 64}, HeadShape{8, 8, 64}, HeadShape{8, 2, 128}, HeadShape{9, 3, 64}})
    for (const bool qk_norm : {false, true}) {
      SCOPED_TRACE(testing::Message() << heads.num_heads << "/" << heads.num_kv_heads << " x " << heads.head_dim);
      const TokenBatch batch = batch_of({1, 37, 150, 16}, 50);
      const int64_t tokens = batch.num_tokens(), dim = heads.head_dim;
      const int64_t width = (heads.num_heads + 2 * heads.num_kv_heads) * dim;
      at::Tensor cosines = empty({256, dim / 2}), sines = empty({256, dim / 2});
      for (int64_t p = 0; p < 256; ++p)
        for (int64_t i = 0; i < dim / 2; ++i) {
          const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / dim);
          floats(cosines)[p * dim / 2 + i] = static_cast<float>(std::cos(angle));
          floats(sines)[p * dim / 2 + i] = static_cast<float>(std::sin(angle));
        }
      const at::Tensor none, norm_q = qk_norm ? rounded({dim}, 7) : none, norm_k = qk_norm ? rounded({dim}, 8) : none;
      const auto device_or_none = [&](const at::Tensor& t) { return t.defined() ? half(t) : t; };
      const QkvTransform host{heads, norm_q, norm_k, 1e-6f, cosines, sines};
      const QkvTransform there{heads, device_or_none(norm_q), device_or_none(norm_k),
                               1e-6f, single(cosines),        single(sines)};
      const at::Tensor qkv = rounded({tokens, width}, 1), dout = rounded({tokens, heads.num_heads, dim}, 2);
      const at::Tensor qkv_d = half(qkv);
      const PlacedBatch at_home = place(batch, KeyLayout::kPacked, heads, qkv),
                        placed = place(batch, KeyLayout::kPacked, heads, qkv_d);
      at::Tensor kv = packed_kv(at_home, heads, qkv), kv_d = packed_kv(placed, heads, qkv_d);
      const std::vector<int64_t> shape{tokens, heads.num_heads, dim};
      at::Tensor out = kernels::empty(shape), out_d = half_empty(shape), lse = empty({tokens, heads.num_heads}),
                 lse_d = single(filled({tokens, heads.num_heads}, NAN));
      attend(qkv, host, at_home, kv, out, lse), attend(qkv_d, there, placed, kv_d, out_d, lse_d);
      expect_close(out_d, out, 2 * kBf16, "attend");
      expect_close(lse_d, lse, kBf16, "logsumexp");
      const auto gradient_of = [](const at::Tensor& t) { return t.defined() ? filled(t.sizes(), 0) : t; };
      at::Tensor dqkv = empty({tokens, width}), dqkv_d = half_empty({tokens, width});
      at::Tensor dq = gradient_of(norm_q), dk = gradient_of(norm_k);
      at::Tensor dq_d = dq.defined() ? single(dq) : dq, dk_d = dk.defined() ? single(dk) : dk;
      attend_backward(dout, qkv, host, at_home, kv, out, lse, dqkv, dq, dk);
      attend_backward(half(dout), qkv_d, there, placed, kv_d, out_d, lse_d, dqkv_d, dq_d, dk_d);
      expect_close(dqkv_d, dqkv, 3 * kBf16, "dqkv");
      if (qk_norm) {
        expect_close(dq_d, dq, 3 * kBf16, "dq_norm");
        expect_close(dk_d, dk, 3 * kBf16, "dk_norm");
      }
    }
}

TEST_F(DeviceOpsTest, LogProbsOfTargetsAndBack) {
  const int64_t rows = 19, vocab = 1000;
  const at::Tensor logits = random_tensor({rows, vocab}, 1, 4);
  at::Tensor logits_d = single(logits);
  std::vector<float> inverse(rows, 1.0f);
  inverse[3] = 1 / 0.7f;
  std::vector<LogitTarget> targets;
  std::vector<TargetSlopes> slopes;
  Philox random(9);
  for (int32_t r = 0; r < rows; ++r) {
    targets.push_back({r, static_cast<int32_t>(random.below(vocab))});
    slopes.push_back({random.normal(), 0.1 * random.normal()});
  }
  std::vector<TargetStats> host(targets.size()), there(targets.size());
  LogitStats stats, stats_d;
  target_logprobs(logits, inverse, targets, true, stats, host);
  target_logprobs(logits_d, inverse, targets, true, stats_d, there);
  for (size_t i = 0; i < host.size(); ++i) {
    EXPECT_NEAR(there[i].logprob, host[i].logprob, 2e-5 * (1 + std::abs(host[i].logprob)));
    EXPECT_NEAR(there[i].entropy, host[i].entropy, 2e-4);
  }
  at::Tensor used = logits.clone();
  const at::Tensor d = target_logprobs_backward(used, inverse, targets, stats, slopes);
  expect_close(target_logprobs_backward(logits_d, inverse, targets, stats_d, slopes), d, kBf16, "d logits");
}

TEST_F(DeviceOpsTest, DrawsWhatItReports) {
  const int64_t rows = 24, vocab = 4096;
  const at::Tensor logits = random_tensor({rows, vocab}, 1, 3);
  std::vector<DrawRow> wanted;
  for (uint32_t r = 0; r < rows; ++r)
    wanted.push_back({philox_key(7, 0), 11, r, 5, r % 3 == 0 ? 1.0f : 1.25f, r % 4 == 0, r % 5 == 1 ? 20 : -1,
                      r % 5 == 2 ? 0.9 : 1.0, r % 5 == 3 ? 0.05 : 0.0,
                      r == 6 ? std::vector<int32_t>{1, 2} : std::vector<int32_t>{}});
  std::vector<Drawn> drawn(rows);
  draw(single(logits), vocab, wanted, drawn);
  for (size_t r = 0; r < wanted.size(); ++r) {
    const auto row = floats(logits).subspan(r * vocab, vocab);
    ASSERT_GE(drawn[r].id, 0);
    const float inverse = wanted[r].inv_temperature;
    const RowStats stats = row_stats(row, inverse, true);
    if (wanted[r].greedy) {
      EXPECT_EQ(drawn[r].id, std::ranges::max_element(row) - row.begin()) << r;
    }
    EXPECT_NEAR(drawn[r].logprob, logprob(row, drawn[r].id, inverse, stats), 2e-5) << r;
    EXPECT_NEAR(drawn[r].entropy, stats.entropy, 2e-4) << r;
  }
}

TEST_F(DeviceOpsTest, CacheBlocksAreCopied) {
  const at::Tensor cache = rounded({6, 2, 2, 64 * kKvBlock}, 1);
  std::vector<at::Tensor> layers{half(cache), half(cache)};
  const at::Tensor before = layers[0].clone();
  const std::vector<BlockCopy> copies{{1, 4}, {0, 5}};
  copy_kv_blocks(layers, copies);
  for (const at::Tensor& layer : layers) {
    EXPECT_TRUE(layer[4].equal(before[1]));
    EXPECT_TRUE(layer[5].equal(before[0]));
    EXPECT_TRUE(layer[1].equal(before[1]));
  }
}

TEST_F(DeviceOpsTest, SpreadsAsTheCpuDoes) {
  for (const int64_t count : {1, 7, 4099}) {
    at::Tensor host = rounded({count}, 3), there = single(host);
    spread_rounded(host, 5), spread_rounded(there, 5);
    EXPECT_TRUE(same_bits(floats(there.cpu()), floats(host))) << count;
  }
}

TEST_F(DeviceOpsTest, OptimizerStep) {
  const std::vector<int64_t> sizes{5, 4096, 100003};
  std::vector<AdamWTensors> host, there;
  std::vector<at::Tensor> gradients, gradients_d;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto make = [&](uint64_t stream, double scale) { return random_tensor({sizes[i]}, 10 * i + stream, scale); };
    const at::Tensor g = make(1, 0.1), w = make(2, 1), m = make(3, 0.01);
    at::Tensor v = make(4, 0.01);
    for (float& x : floats(v)) x = x * x;
    there.push_back({single(g), single(w), single(m), single(v), half(w)});
    host.push_back({g.clone(), w.clone(), m.clone(), v.clone(), {}});
    gradients.push_back(g), gradients_d.push_back(single(g));
  }
  EXPECT_NEAR(sum_of_squares(gradients_d), sum_of_squares(gradients), 1e-9 * sum_of_squares(gradients));
  const AdamW settings{1e-2, 0.9, 0.95, 1e-8, 0.1, 3, 0.5};
  adamw(settings, host), adamw(settings, there);
  for (size_t i = 0; i < sizes.size(); ++i) {
    expect_close(there[i].weight, host[i].weight, 1e-6, "weight");
    expect_close(there[i].moment1, host[i].moment1, 1e-6, "moment1");
    expect_close(there[i].moment2, host[i].moment2, 1e-6, "moment2");
    EXPECT_TRUE(there[i].compute_weight.equal(there[i].weight.to(at::kBFloat16))) << "the compute weight";
  }
}

}  // namespace
}  // namespace tandem::kernels
