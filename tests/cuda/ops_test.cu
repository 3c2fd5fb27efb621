// Norms, head split, activation, rows and optimizer against fp64, on the device they are for.
#include <numeric>

#include "harness.cuh"
#include "kernels/chunks.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/qkv.h"
#include "kernels/cuda/swiglu.h"
#include "kernels/id_groups.h"

namespace tandem::cuda::test {
namespace {

constexpr float kEps = 1e-6f;
using Values = std::vector<double>;

double inverse_rms(const double* x, int64_t size) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += x[i] * x[i];
  return 1.0 / std::sqrt(squares / static_cast<double>(size) + kEps);
}

// dx of out = x · inv · w, and dweight +=.
Values norm_gradient(const double* dout, const double* x, const double* w, int64_t size, double* dweight) {
  const double inv = inverse_rms(x, size);
  double dot = 0;
  for (int64_t i = 0; i < size; ++i) dot += dout[i] * w[i] * x[i];
  Values dx;
  for (int64_t i = 0; i < size; ++i) {
    dx.push_back(inv * (dout[i] * w[i] - x[i] * inv * inv * dot / static_cast<double>(size)));
    dweight[i] += dout[i] * x[i] * inv;
  }
  return dx;
}

void norm(Report& report, int64_t tokens, int64_t hidden, float scale) {
  const Buffer<bf16> x(tokens * hidden), y(tokens * hidden), sum(tokens * hidden), weight(hidden);
  Buffer<bf16> out(tokens * hidden), fused(tokens * hidden), one(hidden);
  randomize(x, scale);
  randomize(y, scale);
  randomize(weight, 0.3f, 1.0f);
  must(cudaMemcpy(sum.get(), x.get(), x.bytes(), cudaMemcpyDeviceToDevice), "copy");
  must(add_rms_norm(sum, y, weight, kEps, tokens, hidden, fused, nullptr), "add_rms_norm");
  must(rms_norm(sum, weight, kEps, tokens, hidden, out, nullptr), "rms_norm");
  report.same_bits(out.download(), fused.download(), "add_rms_norm and rms_norm");
  const Values w = weight.values();
  for (const int64_t row : some_rows(tokens)) {
    const Values px = x.values(row * hidden, hidden), py = y.values(row * hidden, hidden);
    const Values total = sum.values(row * hidden, hidden);
    Values added, normed;
    const double inv = inverse_rms(total.data(), hidden);
    for (int64_t i = 0; i < hidden; ++i) {
      added.push_back(to_float(__float2bfloat16_rn(static_cast<float>(px[i]) + static_cast<float>(py[i]))));
      normed.push_back(total[i] * inv * w[i]);
    }
    report.close(total, added, 0, 0, "x + y");
    report.close(out.values(row * hidden, hidden), normed, kBf16, 0, "norm");
    one.poison();
    must(rms_norm(sum + row * hidden, weight, kEps, 1, hidden, one, nullptr), "one row");
    report.same_bits(out.download(row * hidden, hidden), one.download(), "a row alone");
  }
  const std::string shape = std::to_string(tokens) + "x" + std::to_string(hidden);
  const double bytes = static_cast<double>(x.bytes());
  report.time("rms_norm " + shape, 2 * bytes, [&] { return rms_norm(x, weight, kEps, tokens, hidden, out, nullptr); });
  report.time("add_rms_norm " + shape, 4 * bytes,
              [&] { return add_rms_norm(sum, y, weight, kEps, tokens, hidden, out, nullptr); });
}

void norm_backward(Report& report, int64_t tokens, int64_t hidden) {
  const Buffer<bf16> x(tokens * hidden), dout(tokens * hidden), weight(hidden), before(tokens * hidden);
  Buffer<bf16> dx(tokens * hidden);
  const Buffer<float> dweight_before(hidden);
  Buffer<float> dweight(hidden), again(hidden);
  const Buffer<char> workspace(static_cast<int64_t>(rms_norm_backward_workspace_bytes(tokens, hidden)));
  randomize(x);
  randomize(dout);
  randomize(weight, 0.3f, 1.0f);
  randomize(before);
  randomize(dweight_before);
  const auto run = [&](Buffer<float>& dw) {
    dx.copy_from(before);
    dw.copy_from(dweight_before);
    must(rms_norm_backward(dout, x, weight, kEps, tokens, hidden, dx, dw, workspace.get(), nullptr), "norm_backward");
  };
  run(dweight);
  const Values px = x.values(), pd = dout.values(), w = weight.values(), old = before.values(), got = dx.values();
  Values gradient = dweight_before.values(), reference;
  for (int64_t row = 0; row < tokens; ++row) {
    const Values g =
        norm_gradient(pd.data() + row * hidden, px.data() + row * hidden, w.data(), hidden, gradient.data());
    for (int64_t i = 0; i < hidden; ++i) reference.push_back(old[row * hidden + i] + g[i]);
  }
  report.close(got, reference, kBf16, 1e-6, "dx");
  report.close(dweight.values(), gradient, 1e-5, 1e-6 * std::sqrt(static_cast<double>(tokens)) * 10, "dweight");
  run(again);
  report.same_bits(dweight.download(), again.download(), "dweight twice");
  report.time(std::to_string(tokens) + "x" + std::to_string(hidden), 4.0 * static_cast<double>(x.bytes()), [&] {
    return rms_norm_backward(dout, x, weight, kEps, tokens, hidden, dx, dweight, workspace.get(), nullptr);
  });
}

struct QkvCase {
  QkvShape shape;
  bool qk_norm;
};

// Rope with halves paired; sign −1 is the transpose.
void rotate(double* x, const double* cos, const double* sin, int64_t dim, double sign) {
  for (int64_t i = 0; i < dim / 2; ++i) {
    const double a = x[i], b = x[i + dim / 2];
    x[i] = a * cos[i] - sign * b * sin[i];
    x[i + dim / 2] = b * cos[i] + sign * a * sin[i];
  }
}

void qkv(Report& report, const QkvCase& c) {
  const auto [tokens, heads, kv_heads, dim] = c.shape;
  const int64_t width = (heads + 2 * kv_heads) * dim, max_position = 4096, half = dim / 2;
  const Buffer<bf16> in(tokens * width), q_norm(dim), k_norm(dim);
  const Buffer<float> cos(max_position * half), sin(max_position * half);
  randomize(in);
  randomize(q_norm, 0.3f, 1.0f);
  randomize(k_norm, 0.3f, 1.0f);
  randomize(cos);
  randomize(sin);
  const int64_t blocks = (tokens + 15) / 16 + 2, stride = 2 * kv_heads * 16 * dim + 64;
  std::vector<int32_t> position_list, slot_list;
  for (int64_t t = 0; t < tokens; ++t) {
    position_list.push_back(static_cast<int32_t>(hashed(t) % max_position));
    slot_list.push_back(t % 7 == 3 ? -1 : static_cast<int32_t>((tokens - 1 - t) + 16));
  }
  const Buffer<int32_t> positions(position_list), slots(slot_list);
  const Buffer<bf16> q(tokens * heads * dim), k(tokens * kv_heads * dim), v(tokens * kv_heads * dim),
      pages(blocks * stride), pages2(blocks * stride);
  const QkvTransform transform{c.qk_norm ? q_norm.get() : nullptr, c.qk_norm ? k_norm.get() : nullptr, kEps, cos, sin};
  const KvPages kv{pages, stride};
  const QkvOutputs all{q, k, v, kv, slots};
  must(split_qkv(in, c.shape, transform, positions, all, nullptr), "split_qkv");
  std::vector<int32_t> token_list(tokens);
  std::iota(token_list.begin(), token_list.end(), 0);
  const Buffer<int32_t> token_index(token_list);
  must(write_kv(k, v, kv_heads, dim, token_index, slots, tokens, {pages2, stride}, nullptr), "write_kv");
  report.same_bits(pages.download(), pages2.download(), "pages by split_qkv and by write_kv");
  const std::vector<bf16> stored = pages.download();
  int64_t written = 0;
  for (const bf16& x : stored) written += std::isnan(to_float(x)) ? 0 : 1;
  const auto skipped = std::count(slot_list.begin(), slot_list.end(), -1);
  report.check(written == (tokens - skipped) * 2 * kv_heads * dim, "pages: another number of entries written");

  const Values wq = q_norm.values(), wk = k_norm.values();
  const Buffer<bf16> q1(heads * dim), k1(kv_heads * dim), v1(kv_heads * dim);
  for (const int64_t t : some_rows(tokens)) {
    Values x = in.values(t * width, width);
    const Values co = cos.values(position_list[t] * half, half), si = sin.values(position_list[t] * half, half);
    const Values v_reference(x.begin() + (heads + kv_heads) * dim, x.end());
    for (int64_t h = 0; h < heads + kv_heads; ++h) {
      double* head = x.data() + h * dim;
      const double inv = c.qk_norm ? inverse_rms(head, dim) : 1.0;
      for (int64_t i = 0; c.qk_norm && i < dim; ++i) head[i] *= inv * (h < heads ? wq : wk)[i];
      rotate(head, co.data(), si.data(), dim, 1.0);
    }
    const Values k_reference(x.begin() + heads * dim, x.begin() + (heads + kv_heads) * dim);
    x.resize(heads * dim);
    report.close(q.values(t * heads * dim, heads * dim), x, kBf16, 2e-6, "q");
    report.close(k.values(t * kv_heads * dim, kv_heads * dim), k_reference, kBf16, 2e-6, "k");
    report.close(v.values(t * kv_heads * dim, kv_heads * dim), v_reference, 0, 0, "v");
    const int32_t slot = slot_list[t];
    if (slot >= 0) {
      for (int64_t h = 0; h < kv_heads; ++h)
        for (int64_t i = 0; i < dim; ++i) {
          const int64_t base = slot / 16 * stride, at = (h * 16 + slot % 16) * dim + i;
          report.check(to_float(stored[base + at]) == to_float(k.download((t * kv_heads + h) * dim + i, 1)[0]) || i > 2,
                       "a key in its page");
          report.check(to_float(stored[base + kv_heads * 16 * dim + at]) == v_reference[h * dim + i], "a value's page");
        }
    }
    const QkvShape one{1, heads, kv_heads, dim};
    must(split_qkv(in + t * width, one, transform, positions + t, {q1, k1, v1, {nullptr, 0}, nullptr}, nullptr), "one");
    report.same_bits(q.download(t * heads * dim, heads * dim), q1.download(), "q of a row alone");
    report.same_bits(k.download(t * kv_heads * dim, kv_heads * dim), k1.download(), "k of a row alone");
  }
  const std::string shape = std::to_string(tokens) + "x(" + std::to_string(heads) + "+2*" + std::to_string(kv_heads) +
                            ")x" + std::to_string(dim);
  report.time("paged " + shape, 2.0 * static_cast<double>(in.bytes()), [&] {
    return split_qkv(in, c.shape, transform, positions, {q, nullptr, nullptr, kv, slots}, nullptr);
  });

  const Buffer<bf16> dq(q.size()), dk(k.size()), dv(v.size()), din(in.size());
  Buffer<float> dq_norm(dim), dk_norm(dim), again(dim);
  const Buffer<char> workspace(static_cast<int64_t>(split_qkv_backward_workspace_bytes(c.shape)));
  randomize(dq);
  randomize(dk);
  randomize(dv);
  const auto backward = [&] {
    return split_qkv_backward(dq, dk, dv, in, c.shape, transform, positions, din, c.qk_norm ? dq_norm.get() : nullptr,
                              c.qk_norm ? dk_norm.get() : nullptr, c.qk_norm ? workspace.get() : nullptr, nullptr);
  };
  dq_norm.zero();
  dk_norm.zero();
  must(backward(), "split_qkv_backward");
  const Values pq = dq.values(), pk = dk.values(), pv = dv.values(), x = in.values();
  const Values all_cos = cos.values(), all_sin = sin.values();
  Values gq(dim), gk(dim), reference;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads + kv_heads; ++h) {
      const double* from = h < heads ? pq.data() + (t * heads + h) * dim : pk.data() + (t * kv_heads + h - heads) * dim;
      Values g(from, from + dim);
      rotate(g.data(), all_cos.data() + position_list[t] * half, all_sin.data() + position_list[t] * half, dim, -1.0);
      if (c.qk_norm)
        g = norm_gradient(g.data(), x.data() + t * width + h * dim, (h < heads ? wq : wk).data(), dim,
                          (h < heads ? gq : gk).data());
      reference.insert(reference.end(), g.begin(), g.end());
    }
    reference.insert(reference.end(), pv.begin() + t * kv_heads * dim, pv.begin() + (t + 1) * kv_heads * dim);
  }
  report.close(din.values(), reference, kBf16, 5e-6, "dqkv");
  if (c.qk_norm) {
    const double slack = 1e-5 * std::sqrt(static_cast<double>(tokens * heads));
    report.close(dq_norm.values(), gq, 1e-5, slack, "dq_norm");
    report.close(dk_norm.values(), gk, 1e-5, slack, "dk_norm");
    again.copy_from(dq_norm);
    dq_norm.zero();
    must(backward(), "again");
    report.same_bits(dq_norm.download(), again.download(), "dq_norm twice");
  }
  report.time("backward " + shape, (c.qk_norm ? 3.0 : 2.0) * static_cast<double>(in.bytes()), backward);
}

void activation(Report& report, int64_t tokens, int64_t width, float scale) {
  const Buffer<bf16> gate_up(tokens * 2 * width), dout(tokens * width), out(tokens * width), out2(tokens * width),
      grad(tokens * 2 * width), one(width);
  randomize(gate_up, scale);
  randomize(dout);
  must(swiglu(gate_up, tokens, width, out, nullptr), "swiglu");
  must(swiglu_backward(dout, gate_up, tokens, width, grad, out2, nullptr), "swiglu_backward");
  report.same_bits(out.download(), out2.download(), "out recomputed");
  for (const int64_t row : some_rows(tokens)) {
    const Values x = gate_up.values(row * 2 * width, 2 * width), d = dout.values(row * width, width);
    Values y, dx(2 * width);
    for (int64_t i = 0; i < width; ++i) {
      const double s = 1.0 / (1.0 + std::exp(-x[i])), silu = x[i] * s;
      y.push_back(silu * x[width + i]);
      dx[i] = d[i] * x[width + i] * (s + silu * (1 - s));
      dx[width + i] = d[i] * silu;
    }
    report.close(out.values(row * width, width), y, kBf16, 1e-6, "out");
    report.close(grad.values(row * 2 * width, 2 * width), dx, kBf16, 2e-6 * scale, "gradient");
    must(swiglu(gate_up + row * 2 * width, 1, width, one, nullptr), "one row");
    report.same_bits(out.download(row * width, width), one.download(), "a row alone");
  }
  const std::string shape = std::to_string(tokens) + "x" + std::to_string(width);
  const double bytes = static_cast<double>(out.bytes());
  report.time("forward " + shape, 3 * bytes, [&] { return swiglu(gate_up, tokens, width, out, nullptr); });
  report.time("backward " + shape, 6 * bytes,
              [&] { return swiglu_backward(dout, gate_up, tokens, width, grad, out2, nullptr); });
}

void rows(Report& report, int64_t tokens, int64_t hidden, int64_t vocabulary, int64_t distinct) {
  std::vector<int32_t> ids, unique(vocabulary);
  for (int64_t t = 0; t < tokens; ++t)  // half of them the same id
    ids.push_back(static_cast<int32_t>(t % 2 == 0 ? vocabulary - 1 : hashed(t) % distinct));
  std::iota(unique.begin(), unique.end(), 0);
  std::reverse(unique.begin(), unique.end());
  unique.resize(std::min<int64_t>(tokens, vocabulary));
  const Buffer<bf16> table(vocabulary * hidden), out(tokens * hidden), dout(tokens * hidden);
  const Buffer<int32_t> index(ids), unique_index(unique);
  randomize(table);
  randomize(dout);
  must(gather_rows(table, index, tokens, hidden, out, nullptr), "gather_rows");
  for (const int64_t row : some_rows(tokens))
    report.same_bits(out.download(row * hidden, hidden), table.download(ids[row] * hidden, hidden), "a gathered row");

  Buffer<float> dweight(vocabulary * hidden), again(vocabulary * hidden);
  const kernels::IdGroups groups = kernels::group_ids(ids);
  const Buffer<int32_t> group_ids(groups.ids), starts(groups.starts), order(groups.order);
  const IdGroupsOnDevice on_device{group_ids, starts, order, static_cast<int64_t>(groups.ids.size())};
  dweight.zero();
  again.zero();
  must(embedding_backward(dout, on_device, hidden, dweight, nullptr), "embedding_backward");
  must(embedding_backward(dout, on_device, hidden, again, nullptr), "embedding_backward");
  report.same_bits(dweight.download(), again.download(), "dweight twice");
  Values reference(vocabulary * hidden);
  const Values d = dout.values();
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < hidden; ++i) reference[ids[t] * hidden + i] += d[t * hidden + i];
  report.close(dweight.values(), reference, 1e-5, 1e-6 * std::sqrt(static_cast<double>(tokens)) * 4, "dweight");

  const auto scattered = static_cast<int64_t>(unique.size());
  const Buffer<bf16> before(vocabulary * hidden);
  randomize(before);
  Buffer<bf16> target(vocabulary * hidden);
  target.copy_from(before);
  must(scatter_add_rows(dout, unique_index, scattered, hidden, target, nullptr), "scatter_add_rows");
  for (const int64_t row : some_rows(scattered)) {
    const Values a = before.values(unique[row] * hidden, hidden);
    Values sum;
    for (int64_t i = 0; i < hidden; ++i)
      sum.push_back(to_float(__float2bfloat16_rn(static_cast<float>(a[i]) + static_cast<float>(d[row * hidden + i]))));
    report.close(target.values(unique[row] * hidden, hidden), sum, 0, 0, "a scattered row");
  }
  const std::string shape = std::to_string(tokens) + "x" + std::to_string(hidden);
  report.time("gather " + shape, 2.0 * static_cast<double>(out.bytes()),
              [&] { return gather_rows(table, index, tokens, hidden, out, nullptr); });
  report.time("embedding_backward " + shape,
              static_cast<double>(dout.bytes()) + 8.0 * static_cast<double>(groups.ids.size() * hidden),
              [&] { return embedding_backward(dout, on_device, hidden, dweight, nullptr); });
}

void blocks(Report& report) {
  const int64_t stride = 2 * 8 * 16 * 128, elements = stride - 128;
  const Buffer<bf16> first(6 * stride), second(6 * stride);
  randomize(first);
  randomize(second);
  const std::vector<bf16> before = second.download();
  const Buffer<bf16*> layers(std::vector<bf16*>{first.get(), second.get()});
  const Buffer<int32_t> from(std::vector<int32_t>{0, 5}), to(std::vector<int32_t>{3, 1});
  must(copy_kv_blocks(layers, 2, stride, elements, from, to, 2, nullptr), "copy_kv_blocks");
  report.same_bits(first.download(3 * stride, elements), first.download(0, elements), "block 0 → 3");
  report.same_bits(second.download(stride, elements), second.download(5 * stride, elements), "block 5 → 1");
  const std::vector<bf16> left(before.begin() + stride + elements, before.begin() + 3 * stride);
  report.same_bits(second.download(stride + elements, 2 * stride - elements), left, "what lies between");
}

void optimizer(Report& report, const std::vector<int64_t>& sizes) {
  const int64_t total =
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) + 4 * static_cast<int64_t>(sizes.size());
  const Buffer<float> g(total), w(total), m(total), v(total);
  Buffer<bf16> compute(total);
  randomize(g, 0.01f);
  randomize(w);
  randomize(m, 0.01f);
  randomize(v, 1e-6f, 1e-5f);
  const Values g0 = g.values(), w0 = w.values(), m0 = m.values(), v0 = v.values();
  std::vector<OptimizerTensor> tensors;
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    offsets.push_back(at);
    tensors.push_back({g + at, w + at, m + at, v + at, tensors.size() == 1 ? nullptr : compute + at, size});
    at += (size + 3) / 4 * 4;
  }
  const std::vector<int64_t> starts = kernels::chunk_starts(sizes, kOptimizerChunk);
  const Buffer<OptimizerTensor> tensor_table(tensors);
  const Buffer<int64_t> start_table(starts);
  const OptimizerTable table{tensor_table, start_table, static_cast<int64_t>(tensors.size()), starts.back()};
  Buffer<float> scale(1);
  const std::vector<int64_t> square_starts = kernels::chunk_starts(sizes, kSquareChunk);
  const Buffer<int64_t> square_start_table(square_starts);
  const OptimizerTable square_table{tensor_table, square_start_table, table.num_tensors, square_starts.back()};
  Buffer<double> chunk_squares(std::max<int64_t>(1, square_starts.back()));
  must(block_squares(square_table, chunk_squares, nullptr), "block_squares");
  const std::vector<double> parts = chunk_squares.download();
  const double sum = std::accumulate(parts.begin(), parts.begin() + square_starts.back(), 0.0);
  long double exact = 0;
  for (size_t t = 0; t < sizes.size(); ++t)
    for (int64_t i = 0; i < sizes[t]; ++i) exact += g0[offsets[t] + i] * g0[offsets[t] + i];
  const auto expected = static_cast<double>(exact);
  report.check(std::abs(sum - expected) <= 1e-12 * expected, "sum of squares");
  Buffer<double> squares(std::vector<double>{sum});
  must(clip_scale(squares, 0.5 * std::sqrt(expected), scale, nullptr), "clip_scale");
  const float clip = scale.download()[0];
  report.check(std::abs(clip - 0.5) < 1e-3, "clip scale " + std::to_string(clip));
  const AdamW settings{1e-2, 0.9, 0.999, 1e-8, 0.1, 3};
  must(adamw(table, settings, scale, nullptr), "adamw");
  const Values w1 = w.values(), m1 = m.values(), v1 = v.values();
  const std::vector<bf16> rounded = compute.download();
  Values got_w, got_m, got_v, want_w, want_m, want_v;
  int64_t wrong = 0;
  for (size_t t = 0; t < sizes.size(); ++t) {
    for (int64_t i = offsets[t]; i < offsets[t] + sizes[t]; ++i) {
      const double grad = g0[i] * clip, m2 = 0.9 * m0[i] + 0.1 * grad, v2 = 0.999 * v0[i] + 0.001 * grad * grad;
      const double step = m2 / (1 - std::pow(0.9, 3)) / (std::sqrt(v2 / (1 - std::pow(0.999, 3))) + 1e-8);
      want_m.push_back(m2), want_v.push_back(v2), want_w.push_back(w0[i] * (1 - 1e-3) - 1e-2 * step);
      got_m.push_back(m1[i]), got_v.push_back(v1[i]), got_w.push_back(w1[i]);
      const float kept = t == 1 ? NAN : to_float(__float2bfloat16_rn(static_cast<float>(w1[i])));
      const float stored = to_float(rounded[i]);
      wrong += stored == kept || (std::isnan(stored) && std::isnan(kept)) ? 0 : 1;
    }
  }
  report.close(got_m, want_m, 1e-6, 1e-9, "moment1");
  report.close(got_v, want_v, 1e-6, 1e-12, "moment2");
  report.close(got_w, want_w, 2e-6, 2e-6, "weight");
  report.check(wrong == 0, "compute weight is not the rounded master");
  const double count = static_cast<double>(total);
  report.time("adamw " + std::to_string(total), 30 * count, [&] { return adamw(table, settings, scale, nullptr); });
  report.time("block_squares " + std::to_string(total), 4 * count,
              [&] { return block_squares(square_table, chunk_squares, nullptr); });
  must(accumulate(g, w, total, nullptr), "accumulate");
  const Values added = g.values(), terms = w.values();
  for (int64_t i = 0; i < total; ++i)
    wrong += static_cast<float>(added[i]) == static_cast<float>(g0[i]) + static_cast<float>(terms[i]) ? 0 : 1;
  report.check(wrong == 0, "a sum is not that of its terms");
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](const std::string& name, bool bench, std::function<void(Report&)> run) {
    list.push_back({name, bench, std::move(run)});
  };
  for (const auto& [tokens, hidden] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 64}, {3, 72}, {17, 576}, {64, 1024}, {5, 2048}, {9, 2056}, {2, 4096}, {3, 8192}}) {
    for (const float scale : {1.0f, 1e4f, 1e-4f})
      add("norm", false, [=, t = tokens, h = hidden](Report& r) { norm(r, t, h, scale); });
    add("norm_backward", false, [t = tokens, h = hidden](Report& r) { norm_backward(r, t, h); });
  }
  add("norm_backward", false, [](Report& r) { norm_backward(r, 333, 264); });
  for (const bool qk_norm : {false, true}) {
    add("qkv", false, [=](Report& r) { qkv(r, {{1, 4, 2, 32}, qk_norm}); });
    add("qkv", false, [=](Report& r) { qkv(r, {{37, 9, 3, 64}, qk_norm}); });
    add("qkv", false, [=](Report& r) { qkv(r, {{65, 16, 8, 128}, qk_norm}); });
    add("qkv", false, [=](Report& r) { qkv(r, {{19, 5, 1, 256}, qk_norm}); });
  }
  for (const float scale : {1.0f, 60.0f}) {
    add("swiglu", false, [=](Report& r) { activation(r, 1, 8, scale); });
    add("swiglu", false, [=](Report& r) { activation(r, 37, 1536, scale); });
  }
  add("rows", false, [](Report& r) { rows(r, 1, 64, 10, 3); });
  add("rows", false, [](Report& r) { rows(r, 301, 576, 1000, 50); });
  add("blocks", false, blocks);
  add("optimizer", false, [](Report& r) { optimizer(r, {1, 5, 0, kOptimizerChunk, kOptimizerChunk + 3, 100001, 64}); });

  add("norm", true, [](Report& r) { norm(r, 30720, 1024, 1.0f); });
  add("norm", true, [](Report& r) { norm(r, 7680, 4096, 1.0f); });
  add("norm_backward", true, [](Report& r) { norm_backward(r, 16384, 1024); });
  add("norm_backward", true, [](Report& r) { norm_backward(r, 4096, 4096); });
  add("qkv", true, [](Report& r) { qkv(r, {{8192, 16, 8, 128}, true}); });
  add("qkv", true, [](Report& r) { qkv(r, {{8192, 28, 4, 128}, false}); });
  add("swiglu", true, [](Report& r) { activation(r, 16384, 3072, 1.0f); });
  add("rows", true, [](Report& r) { rows(r, 30720, 1024, 20000, 8000); });
  add("optimizer", true, [](Report& r) { optimizer(r, {7000000, 1024, 3145728, 1024 * 6144, 1024, 65536}); });
  return list;
}

}  // namespace
}  // namespace tandem::cuda::test

int main(int argc, char** argv) { return tandem::cuda::test::run_cases(tandem::cuda::test::cases(), argc, argv); }
