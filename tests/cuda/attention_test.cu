// Attention on the device: all forward paths agree in every bit, forward and backward agree with float64, and how fast
// they are. Usage: attention_test [small | test | bench] [matmul ceiling in TFLOP/s]; prints JSON lines, exits 1 on a
// failed check. The ceiling of matrix products is measured outside, since no BLAS is linked.
//
// Bounds. Rounding an exact output to bf16 costs 1.7e-3 norm-wise (uniform error of 2^-9); weights are rounded once
// before they meet the values, so out gets 3e-3. Gradients pass through P and dS in bf16 and a bf16 out: 8e-3. With
// scores of ±100s the softmax is all but one-hot and dP − delta cancels: there gradients need only be finite.
#include <cstring>
#include <string>

#include "attention_reference.cuh"

namespace tandem::cuda::test {
namespace {

constexpr double kOutBound = 3e-3, kLogsumexpBound = 2e-5, kGradientBound = 8e-3;

int failures = 0;
void expect(bool ok, const char* what) {
  if (ok) return;
  ++failures;
  std::printf("FAIL %s\n", what);
}

// counts[0]: words that differ between rows i of `a` and source[i] of `b`; counts[1]: values that are not finite.
__global__ void compare_kernel(const bf16* a, const float* la, const bf16* b, const float* lb, const int32_t* source,
                               int rows, int heads, int dim, unsigned long long* counts) {
  for (int r = blockIdx.x; r < rows; r += gridDim.x) {
    for (int c = threadIdx.x; c < heads * dim; c += blockDim.x) {
      const bf16 x = a[static_cast<int64_t>(r) * heads * dim + c];
      const bf16 y = b[static_cast<int64_t>(source[r]) * heads * dim + c];
      if (__bfloat16_as_ushort(x) != __bfloat16_as_ushort(y)) atomicAdd(counts, 1);
      if (!isfinite(__bfloat162float(x))) atomicAdd(counts + 1, 1);
    }
    for (int h = threadIdx.x; h < heads; h += blockDim.x) {
      const float x = la[static_cast<int64_t>(r) * heads + h], y = lb[static_cast<int64_t>(source[r]) * heads + h];
      if (__float_as_uint(x) != __float_as_uint(y)) atomicAdd(counts, 1);
      if (!isfinite(x)) atomicAdd(counts + 1, 1);
    }
  }
}

class BitCheck {
 public:
  BitCheck(const Batch& batch, const Result& expected) : batch_(batch), expected_(expected) {}
  // Row i of `got` must be row source[i] of the expected packed result.
  void same(const char* path, const char* kernels, const Result& got, const std::vector<int32_t>& source) {
    const Device<int32_t> device_source(source);
    Device<unsigned long long> counts(std::vector<unsigned long long>{0, 0});
    compare_kernel<<<2048, 256>>>(got.out.get(), got.logsumexp.get(), expected_.out.get(), expected_.logsumexp.get(),
                                  device_source.get(), static_cast<int>(source.size()), batch_.form.heads,
                                  batch_.form.head_dim, counts.get());
    must(cudaDeviceSynchronize());
    const auto n = counts.host();
    compared += source.size() * batch_.form.heads * batch_.form.head_dim;
    if (n[0] + n[1] == 0) return;
    std::printf("  %s, %s: %llu differ, %llu not finite\n", path, kernels, n[0], n[1]);
    expect(false, batch_.form.name);
  }
  size_t compared = 0;

 private:
  const Batch& batch_;
  const Result& expected_;
};

std::vector<int32_t> iota(int32_t n) {
  std::vector<int32_t> v(n);
  std::iota(v.begin(), v.end(), 0);
  return v;
}

// Paged prefill of every sample, in one piece or in odd ones.
Result paged(const Batch& b, const AttentionDevice& device, std::mt19937* pieces) {
  std::vector<QueryTile> runs;
  for (size_t i = 0; i < b.samples.size(); ++i)
    for (int32_t pos = 0, length = b.samples[i].length; pos < length;) {
      const int32_t count = pieces ? std::min<int32_t>(length - pos, 1 + (*pieces)() % 301) : length;
      runs.push_back({b.samples[i].flat_row + pos, count, pos, static_cast<int32_t>(i) * b.table_stride});
      pos += count;
    }
  const auto tiles = plan_query_tiles(runs, b.head_group());
  const Device<QueryTile> device_tiles(tiles);
  Result result(b.flat_rows, b.form);
  must(paged_attention({b.shape(), b.flat.get(), b.width(), b.paged(), device_tiles.get(),
                        static_cast<int32_t>(tiles.size()), result.out.get(), result.logsumexp.get()},
                       device, nullptr));
  must(cudaDeviceSynchronize());
  return result;
}

// Every position of short samples, edges and a part of the others.
std::vector<std::pair<int32_t, int32_t>> decode_queries(const Batch& b, std::mt19937& random) {
  std::vector<std::pair<int32_t, int32_t>> queries;
  for (size_t i = 0; i < b.samples.size(); ++i)
    for (int32_t seen = 1; seen <= b.samples[i].length; ++seen) {
      const int32_t edge = seen % kChunk;
      if (edge <= 1 || edge == kChunk - 1 || seen == b.samples[i].length || random() % 100 < 15)
        queries.emplace_back(static_cast<int32_t>(i), seen);
    }
  std::shuffle(queries.begin(), queries.end(), random);
  return queries;
}

void decode_in_graph(const DecodeAttention& args, const AttentionDevice& device) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamCreate(&stream));
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(decode_attention(args, device, stream));
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphLaunch(exec, stream));
  must(cudaStreamSynchronize(stream));
  must(cudaGraphExecDestroy(exec));
  must(cudaGraphDestroy(graph));
  must(cudaStreamDestroy(stream));
}

void check_decode(const Batch& b, const AttentionDevice& device, const char* kernels, std::mt19937& random,
                  BitCheck& bits) {
  const auto queries = decode_queries(b, random);
  auto run = [&](const std::vector<std::pair<int32_t, int32_t>>& some, bool share, int32_t spare, const char* path) {
    const DecodeInput in(b, some, share, spare);
    Result result(static_cast<int64_t>(some.size()), b.form);
    if (spare > 0)
      decode_in_graph(in.args(result), device);
    else
      must(decode_attention(in.args(result), device, nullptr));
    must(cudaDeviceSynchronize());
    std::vector<int32_t> source;
    for (const auto& [sample, seen] : some) source.push_back(b.samples[sample].row_of(seen - 1));
    bits.same(path, kernels, result, source);
  };
  run(queries, false, 0, "decode");
  run(queries, true, 0, "decode, prefixes shared");
  run(queries, true, 300, "decode in a graph with spare capacity");
  for (size_t i = 0; i < std::min<size_t>(queries.size(), 20); ++i) run({queries[i]}, true, 0, "decode alone");
}

bool same_bits(const Device<bf16>& a, const Device<bf16>& b) {
  const auto x = a.host(), y = b.host();
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(bf16)) == 0;
}

void check_backward(const PackedInput& in, const AttentionDevice& device, const Result& forward,
                    const Device<bf16>& dout, const Reference& expected, const char* kernels) {
  const Case& form = in.batch.form;
  Device<char> workspace(packed_attention_backward_workspace(in.batch.shape(), in.num_rows));
  workspace.poison();
  const Gradients first(in.num_rows, form), second(in.num_rows, form);
  must(packed_attention_backward(backward_args(in, forward, dout, workspace, first), device, nullptr));
  must(packed_attention_backward(backward_args(in, forward, dout, workspace, second), device, nullptr));
  must(cudaDeviceSynchronize());
  expect(same_bits(first.dq, second.dq) && same_bits(first.dk, second.dk) && same_bits(first.dv, second.dv),
         "the backward repeats bit for bit");
  const double dq = relative_error(first.dq, expected.dq), dk = relative_error(first.dk, expected.dk),
               dv = relative_error(first.dv, expected.dv);
  std::printf("  backward, %s: dq %.2e, dk %.2e, dv %.2e\n", kernels, dq, dk, dv);
  if (form.qk_scale > 1 || form.wide)
    expect(std::isfinite(dq) && std::isfinite(dk) && std::isfinite(dv), "gradients are finite");
  else
    expect(dq < kGradientBound && dk < kGradientBound && dv < kGradientBound, "gradients against float64");
}

void check(const Case& form, uint64_t seed, const AttentionDevice& device, bool backward) {
  const Batch b = make_batch(form, seed);
  std::mt19937 random(static_cast<uint32_t>(seed * 31));
  const PackedInput packed(b, false), flat(b, true);
  std::vector<std::pair<AttentionDevice, const char*>> kinds{{{device.multiprocessors, false}, "mma.sync"}};
  if (device.wgmma) kinds.insert(kinds.begin(), {device, "wgmma"});

  Result expected(b.packed_rows, form);
  must(packed_attention(packed.forward(expected), kinds[0].first, nullptr));
  must(cudaDeviceSynchronize());
  BitCheck bits(b, expected);
  for (const auto& [kind, name] : kinds) {
    Result again(b.packed_rows, form), whole(b.flat_rows, form);
    must(packed_attention(packed.forward(again), kind, nullptr));
    bits.same("packed", name, again, iota(b.packed_rows));
    must(packed_attention(flat.forward(whole), kind, nullptr));
    bits.same("packed, samples whole", name, whole, b.flat_to_packed);
    bits.same("paged", name, paged(b, kind, nullptr), b.flat_to_packed);
    bits.same("paged, odd pieces", name, paged(b, kind, &random), b.flat_to_packed);
    check_decode(b, kind, name, random, bits);
  }
  Device<bf16> dout(expected.out.size());
  fill(dout, seed + 1000, 1.0f);
  const Reference reference64 = reference(packed, backward ? &dout : nullptr);
  const double out = relative_error(expected.out, reference64.out);
  const double lse = largest_error(expected.logsumexp, reference64.logsumexp);
  std::printf("%s %d/%d x %d: %zu values compared, out %.2e, logsumexp %.1e\n", form.name, form.heads, form.kv_heads,
              form.head_dim, bits.compared, out, lse);
  expect(out < kOutBound && lse < kLogsumexpBound, "out and logsumexp against float64");
  if (backward)
    for (const auto& [kind, name] : kinds) check_backward(packed, kind, expected, dout, reference64, name);
  std::fflush(stdout);
}

std::vector<Group> alone(std::vector<int32_t> lengths) {
  std::vector<Group> groups;
  for (const int32_t n : lengths) groups.push_back({0, {n}});
  return groups;
}
const std::vector<Group> kSharing{{128, {129, 200, 384, 300, 130, 257, 384, 383}},
                                  {200, {201, 456, 512}},
                                  {512, {640, 700, 513, 514}},
                                  {15, {16, 40}},
                                  {300, {301, 301, 302, 320, 900}}};
const std::vector<Group> kShort{{0, {1}}, {0, {64}}, {0, {129}}, {40, {65, 130, 200}}, {128, {300, 129}}, {5, {6, 70}}};

std::vector<Case> small_cases() {
  return {{"small", 4, 2, 128, kShort}, {"small", 3, 1, 64, {{0, {65}}, {40, {130, 200}}}}};
}
std::vector<Case> gradient_cases() {
  std::vector<Case> cases;
  const std::vector<std::pair<int32_t, int32_t>> heads{{4, 2},  {9, 3}, {8, 2}, {14, 2},
                                                       {12, 2}, {2, 2}, {8, 1}, {5, 1}};
  for (const auto& [h, k] : heads)
    for (const int32_t dim : {64, 128}) cases.push_back({"short", h, k, dim, kShort});
  cases.push_back({"sharing", 4, 2, 128, kSharing});
  cases.push_back({"sharing", 3, 1, 64, kSharing});
  cases.push_back({"large magnitude", 4, 2, 128, kShort, 8, 300});
  cases.push_back({"wide exponents", 4, 2, 128, kShort, 1, 1, true});
  return cases;
}
std::vector<Case> bit_cases() {
  const auto edges = alone({1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 300, 511, 512, 513, 1000, 3000});
  std::vector<Case> cases{{"edges", 16, 8, 128, edges}, {"edges", 9, 3, 64, edges}};
  const std::vector<std::pair<int32_t, int32_t>> heads{{16, 8}, {32, 8}, {14, 2}, {12, 2}, {9, 3}, {8, 8}, {64, 8}};
  for (const auto& [h, k] : heads)
    for (const int32_t dim : {64, 128}) cases.push_back({"sharing", h, k, dim, kSharing});
  for (const int32_t dim : {64, 128}) {
    cases.push_back({"large magnitude", 16, 8, dim, kSharing, 8, 300});
    cases.push_back({"wide exponents", 16, 8, dim, kSharing, 1, 1, true});
  }
  return cases;
}

struct Ceilings {
  double bytes, flops;  // a second
};

void report(const char* what, const Case& form, const char* kernels, double us, double rate, double ceiling) {
  std::printf(
      "{\"bench\": \"%s\", \"batch\": \"%s\", \"heads\": \"%d/%d x %d\", \"kernels\": \"%s\", \"us\": %.1f, "
      "\"rate\": %.4g, \"of_ceiling\": %.3f}\n",
      what, form.name, form.heads, form.kv_heads, form.head_dim, kernels, us, rate, rate / ceiling);
  std::fflush(stdout);
}

void bench_decode(const Case& form, const AttentionDevice& device, const Ceilings& ceilings) {
  const Batch b = make_batch(form, 1);
  std::vector<std::pair<int32_t, int32_t>> queries;
  double keys = 0;
  for (const auto& g : form.groups) keys += g.prompt;
  for (size_t i = 0; i < b.samples.size(); ++i) {
    queries.emplace_back(static_cast<int32_t>(i), b.samples[i].length);
    keys += b.samples[i].length - b.samples[i].prompt;
  }
  const DecodeInput in(b, queries, true, 0);
  const Result result(static_cast<int64_t>(queries.size()), form);
  const double us = time_us([&] { must(decode_attention(in.args(result), device, nullptr)); }, 20);
  const double bytes = keys * form.kv_heads * form.head_dim * 4;  // each key and value once
  report("decode", form, "mma.sync", us, bytes / us * 1e6, ceilings.bytes);
}

void bench_training(const Case& form, AttentionDevice device, bool wgmma, const Ceilings& ceilings) {
  device.wgmma = wgmma;
  const char* kernels = wgmma ? "wgmma" : "mma.sync";
  const Batch b = make_batch(form, 1);
  const PackedInput in(b, false);
  const Result result(b.packed_rows, form);
  double pairs = 0;  // of a query and a key it sees
  for (const auto& s : b.packed_sequences) pairs += s.own_len * (s.prefix_len + 0.5 * s.own_len);
  const double flops = 4 * pairs * form.heads * form.head_dim;
  double us = time_us([&] { must(packed_attention(in.forward(result), device, nullptr)); });
  report("forward", form, kernels, us, flops / us * 1e6, ceilings.flops);
  Device<bf16> dout(result.out.size());
  fill(dout, 7, 1.0f);
  const Device<char> workspace(packed_attention_backward_workspace(b.shape(), b.packed_rows));
  const Gradients gradients(b.packed_rows, form);
  const auto args = backward_args(in, result, dout, workspace, gradients);
  us = time_us([&] { must(packed_attention_backward(args, device, nullptr)); });
  report("backward", form, kernels, us, 2.5 * flops / us * 1e6, ceilings.flops);
}

std::vector<Group> repeated(int32_t times, int32_t prompt, int32_t samples, int32_t length) {
  return std::vector<Group>(times, {prompt, std::vector<int32_t>(samples, length)});
}

void bench(const AttentionDevice& device, double matmul_tflops) {
  const Ceilings ceilings{copy_ceiling(), matmul_tflops * 1e12};
  std::printf("{\"copy_ceiling\": %.4g, \"matmul_ceiling\": %.4g}\n", ceilings.bytes, ceilings.flops);
  for (const auto& form : std::vector<Case>{{"1024 x 384, 8 share 128", 16, 8, 128, repeated(128, 128, 8, 384)},
                                            {"512 x 640", 16, 8, 128, repeated(512, 0, 1, 640)},
                                            {"512 x 1152, 8 share 128", 16, 8, 128, repeated(64, 128, 8, 1152)},
                                            {"512 x 640", 32, 8, 128, repeated(512, 0, 1, 640)},
                                            {"1024 x 640", 9, 3, 64, repeated(1024, 0, 1, 640)},
                                            {"64 x 1024", 16, 8, 128, repeated(64, 0, 1, 1024)}})
    bench_decode(form, device, ceilings);
  for (const auto& form : std::vector<Case>{{"48 x 640", 16, 8, 128, repeated(48, 0, 1, 640)},
                                            {"12 x 640", 32, 8, 128, repeated(12, 0, 1, 640)},
                                            {"6 x 8 x 640, prompts of 128", 16, 8, 128, repeated(6, 128, 8, 640)},
                                            {"8 x 4096", 16, 8, 128, repeated(8, 0, 1, 4096)},
                                            {"48 x 640", 9, 3, 64, repeated(48, 0, 1, 640)}}) {
    if (device.wgmma) bench_training(form, device, true, ceilings);
    bench_training(form, device, false, ceilings);
  }
}

int run(const std::string& what, double matmul_tflops) {
  AttentionDevice device{};
  must(attention_device(device));
  std::printf("%d multiprocessors, wgmma %d\n", device.multiprocessors, device.wgmma);
  if (what == "small")
    for (const auto& form : small_cases()) check(form, 1, device, true);
  if (what == "test") {
    for (const auto& form : gradient_cases()) check(form, 2, device, true);
    for (const auto& form : bit_cases()) check(form, 3, device, false);
  }
  if (what == "bench") bench(device, matmul_tflops);
  std::printf("%s: %d failures\n", what.c_str(), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tandem::cuda::test

int main(int argc, char** argv) {
  return tandem::cuda::test::run(argc > 1 ? argv[1] : "test", argc > 2 ? std::atof(argv[2]) : 800.0);
}
