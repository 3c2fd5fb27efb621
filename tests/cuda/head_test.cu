// Log-probs, their gradient and the sampler against fp64, on the device they are for.
#include "base/rng.h"
#include "harness.cuh"
#include "kernels/cuda/head.h"
#include "kernels/cuda/sampler.h"
#include "sampler_reference.h"

namespace tandem::cuda::test {
namespace {

using Values = std::vector<double>;

struct RowReference {
  double max = -INFINITY, log_sum = 0, entropy = 0;
};

RowReference reference_stats(const std::vector<float>& logits, double inv_temperature) {
  RowReference r;
  for (const float x : logits) r.max = std::max(r.max, x * inv_temperature);
  double total = 0, weighted = 0;
  for (const float x : logits) {
    const double below = x * inv_temperature - r.max, e = std::exp(below);
    total += e;
    if (e > 0) weighted += e * below;
  }
  r.log_sum = std::log(total);
  r.entropy = r.log_sum - weighted / total;
  return r;
}

std::vector<float> some_temperatures(int64_t rows) {
  std::vector<float> inverse;
  for (int64_t r = 0; r < rows; ++r) inverse.push_back(r % 3 == 0 ? 1.0f : r % 3 == 1 ? 1.0f / 0.7f : 0.25f);
  return inverse;
}

struct HeadCase {
  int64_t rows, vocabulary, stride;
  float scale;
};

void head(Report& report, const HeadCase& c) {
  const auto [rows, vocabulary, stride, scale] = c;
  const Buffer<float> original(rows * stride);
  randomize(original, scale);
  Buffer<float> logits(original.size());
  logits.copy_from(original);
  const std::vector<float> inverse = some_temperatures(rows);
  std::vector<int32_t> target_list;
  for (int64_t r = 0; r < rows; ++r)
    target_list.push_back(r % 5 == 4 ? -1 : static_cast<int32_t>(hashed(r) % vocabulary));
  const Buffer<float> inv(inverse), max(rows), log_sum(rows), entropy(rows), logprob(rows), dlogprob(rows),
      dentropy(rows);
  const Buffer<int32_t> targets(target_list);
  randomize(dlogprob);
  randomize(dentropy);
  const Buffer<char> workspace(static_cast<int64_t>(row_stats_workspace_bytes(rows, vocabulary)));
  const LogitsView view{logits, rows, vocabulary, stride};
  const RowStats stats{max, log_sum, entropy};
  must(row_stats(view, inv, stats, workspace.get(), nullptr), "row_stats");
  must(target_logprobs(view, inv, stats, targets, logprob, nullptr), "target_logprobs");
  const Values got_max = max.values(), got_sum = log_sum.values(), got_entropy = entropy.values(),
               got_logprob = logprob.values(), dl = dlogprob.values(), de = dentropy.values();

  const int64_t grad_stride = (vocabulary + 7) / 8 * 8;
  const Buffer<bf16> packed(rows * grad_stride), one_grad(grad_stride);
  const HeadGradient gradient{targets, dlogprob, dentropy};
  must(logits_backward(view, inv, stats, gradient, packed, grad_stride, nullptr), "to bf16");
  must(logits_backward(view, inv, stats, gradient, nullptr), "in place");
  const bool overwrites = stride % 4 == 0;
  Buffer<float> second(original.size());
  second.copy_from(original);
  if (overwrites)
    must(logits_backward({second, rows, vocabulary, stride}, inv, stats, gradient,
                         reinterpret_cast<bf16*>(second.get()), 2 * stride, nullptr),
         "to bf16 in place");

  const Buffer<float> max1(1), log_sum1(1), entropy1(1);
  for (const int64_t r : some_rows(rows)) {
    const std::vector<float> x = original.download(r * stride, vocabulary);
    const RowReference want = reference_stats(x, inverse[r]);
    report.close({got_max[r]}, {want.max}, 1e-7, 0, "max");
    report.close({got_sum[r]}, {want.log_sum}, 1e-6, 1e-6, "log_sum");
    report.close({got_entropy[r]}, {want.entropy}, 2e-6, 2e-6, "entropy");
    const int32_t target = target_list[r];
    const double reached = target < 0 ? 0 : x[target] * double{inverse[r]} - want.max - want.log_sum;
    report.close({got_logprob[r]}, {reached}, 1e-6, 1e-6 + 1e-7 * std::abs(want.max), "logprob");
    Values dx;
    for (int64_t i = 0; i < vocabulary; ++i) {
      const double logp = x[i] * double{inverse[r]} - want.max - want.log_sum, p = std::exp(logp);
      const double weight = target < 0 ? 0 : dl[r];
      dx.push_back(inverse[r] * (weight * ((i == target ? 1.0 : 0.0) - p) - de[r] * p * (logp + want.entropy)));
    }
    report.close(logits.values(r * stride, vocabulary), dx, 1e-4, 1e-7, "dlogits");
    report.close(packed.values(r * grad_stride, vocabulary), dx, kBf16, 1e-7, "bf16 dlogits");
    if (overwrites) {
      const std::vector<float> raw = second.download(r * stride, (vocabulary + 1) / 2);
      std::vector<bf16> halves(vocabulary);
      std::memcpy(halves.data(), raw.data(), halves.size() * sizeof(bf16));
      report.same_bits(halves, packed.download(r * grad_stride, vocabulary), "bf16 dlogits in place");
    }
    // The row alone.
    Buffer<float> alone(stride);
    must(cudaMemcpy(alone.get(), original + r * stride, alone.bytes(), cudaMemcpyDeviceToDevice), "copy");
    must(row_stats({alone, 1, vocabulary, stride}, inv + r, {max1, log_sum1, entropy1}, workspace.get(), nullptr),
         "one row");
    report.same_bits(max.download(r, 1), max1.download(), "max of a row alone");
    report.same_bits(log_sum.download(r, 1), log_sum1.download(), "log_sum of a row alone");
    report.same_bits(entropy.download(r, 1), entropy1.download(), "entropy of a row alone");
    must(logits_backward({alone, 1, vocabulary, stride}, inv + r, {max1, log_sum1, entropy1},
                         {targets + r, dlogprob + r, dentropy + r}, one_grad, grad_stride, nullptr),
         "one row's gradient");
    report.same_bits(packed.download(r * grad_stride, vocabulary), one_grad.download(0, vocabulary),
                     "gradient of a row alone");
  }
  const std::string shape = std::to_string(rows) + "x" + std::to_string(vocabulary);
  const double bytes = 4.0 * static_cast<double>(rows * vocabulary);
  logits.copy_from(original);
  report.time("row_stats " + shape, bytes, [&] { return row_stats(view, inv, stats, workspace.get(), nullptr); });
  report.time("logits_backward bf16 " + shape, 1.5 * bytes,
              [&] { return logits_backward(view, inv, stats, gradient, packed, grad_stride, nullptr); });
  const HeadGradient plain{targets, dlogprob, nullptr};
  report.time("logits_backward bf16 without entropy " + shape, 1.5 * bytes,
              [&] { return logits_backward(view, inv, stats, plain, packed, grad_stride, nullptr); });
  report.time("logits_backward fp32 in place " + shape, 2 * bytes,
              [&] { return logits_backward(view, inv, stats, gradient, nullptr); });
}

// −inf is a probability of zero; NaN and +inf show.
void odd_logits(Report& report) {
  const int64_t vocabulary = 5000, rows = 4;
  std::vector<float> x(rows * vocabulary, -INFINITY);
  x[3] = 2, x[4500] = 1;
  for (int64_t r = 1; r < rows; ++r)
    for (int64_t i = 0; i < vocabulary; ++i) x[r * vocabulary + i] = static_cast<float>(i % 10);
  x[vocabulary + 4000] = NAN, x[2 * vocabulary + 17] = INFINITY;
  const Buffer<float> logits(x), inv(std::vector<float>(rows, 1.0f)), max(rows), log_sum(rows), entropy(rows);
  const Buffer<char> workspace(static_cast<int64_t>(row_stats_workspace_bytes(rows, vocabulary)));
  must(row_stats({logits, rows, vocabulary, vocabulary}, inv, {max, log_sum, entropy}, workspace.get(), nullptr),
       "run");
  const Values sums = log_sum.values(), entropies = entropy.values();
  const double p = 1 / (1 + std::exp(-1.0));
  report.close({sums[0], entropies[0]}, {-std::log(p), -p * std::log(p) - (1 - p) * std::log(1 - p)}, 1e-6, 1e-6,
               "two finite logits");
  report.check(std::isnan(sums[1]) && std::isnan(sums[2]) && std::isfinite(sums[3]), "NaN and +inf show in log_sum");
}

struct SamplerCase {
  int64_t rows, vocabulary, drawable;
  float scale;
  enum Kind { kWhole, kNarrowed, kMixed, kTies, kUsual } kind = kMixed;
};

struct SamplerRows {
  std::vector<SamplingRow> rows;
  std::vector<DrawSettings> settings;
  std::vector<float> inverse;
  std::vector<int32_t> positions, barred;
  std::vector<double> uniforms;
  bool narrows = false;
};

SamplerRows make_rows(const SamplerCase& c) {
  SamplerRows out;
  for (int64_t r = 0; r < c.rows; ++r) {
    SamplingRow row{};
    DrawSettings s;
    row.top_p = 1;
    s.num_drawable = c.drawable;
    const bool narrow = c.kind == SamplerCase::kNarrowed || c.kind == SamplerCase::kTies ||
                        (c.kind == SamplerCase::kMixed && r % 2 == 1);
    if (narrow) {
      if (r % 3 != 0) row.top_k = r % 3 == 1 ? 50 : static_cast<int32_t>(c.vocabulary / 2);
      if (r % 4 != 1) row.top_p = 0.95;
      if (r % 5 == 2) row.min_p = 0.02;
      if (row.top_k == 0 && row.top_p == 1) row.min_p = 0.05;
    }
    if (c.kind == SamplerCase::kUsual) row.top_k = r % 2 == 0 ? 20 : 0, row.top_p = 0.95;
    row.greedy = c.kind == SamplerCase::kMixed && r % 6 == 4 ? 1 : 0;
    s.top_k = row.top_k > 0 ? row.top_k : -1, s.top_p = row.top_p, s.min_p = row.min_p, s.greedy = row.greedy != 0;
    out.inverse.push_back(s.greedy ? 1.0f : r % 4 == 2 ? 1.0f / 0.8f : 1.0f);
    s.inv_temperature = out.inverse.back();
    const auto position = static_cast<int32_t>(r % 9);
    row.min_tokens = 4, row.barred_offset = static_cast<int32_t>(out.barred.size());
    if (c.kind == SamplerCase::kMixed && r % 7 < 3) {
      row.num_barred = 2;
      for (int i = 0; i < 2; ++i) {
        out.barred.push_back(static_cast<int32_t>(hashed(r * 2 + i) % c.vocabulary));
        if (position < 4) s.barred.push_back(out.barred.back());
      }
    }
    const SampleKey key{17, 3, static_cast<uint64_t>(r) << 33 | 5, static_cast<uint32_t>(r % 8)};
    row.philox_key = philox_key(key.seed, key.policy_version);
    row.prompt_id = key.prompt_id, row.sample_index = key.sample_index;
    out.positions.push_back(position);
    out.uniforms.push_back(uniform_for(key, static_cast<uint32_t>(position)));
    out.narrows = out.narrows || ((narrow || c.kind == SamplerCase::kUsual) && !s.greedy);
    out.rows.push_back(row);
    out.settings.push_back(s);
  }
  out.barred.push_back(0);
  return out;
}

// Rounding may move a draw over a border between neighbours in the order; never further.
bool acceptable(const Distribution& d, double uniform, int32_t id) {
  for (const double shift : {0.0, -2e-6, 2e-6})
    if (d.ids[draw(d, std::clamp(uniform + shift, 0.0, 1.0))] == id) return true;
  return false;
}

void sampler(Report& report, const SamplerCase& c) {
  const auto [rows, vocabulary, drawable, scale, kind] = c;
  Buffer<float> logits(rows * vocabulary);
  randomize(logits, scale);
  if (kind == SamplerCase::kTies) {  // few values, so that bins overflow and ids decide
    std::vector<float> x = logits.download();
    for (float& v : x) v = std::round(v / scale) * 0.5f;
    for (int64_t i = 0; i < vocabulary; ++i) x[i] = 1.25f;
    logits.upload(x);
  }
  const SamplerRows setup = make_rows(c);
  const Buffer<SamplingRow> settings(setup.rows);
  const Buffer<float> inv(setup.inverse), max(rows), log_sum(rows), entropy(rows), logprobs(rows);
  const Buffer<int32_t> positions(setup.positions), barred(setup.barred), ids(rows), next(rows);
  const Buffer<char> workspace(static_cast<int64_t>(sampler_workspace_bytes(rows, vocabulary)));
  const SamplerInputs in{
      {logits, rows, vocabulary, vocabulary}, drawable, inv, settings, positions, barred, setup.narrows};
  const SamplerOutputs out{ids, next, logprobs, {max, log_sum, entropy}};
  must(sample(in, out, workspace.get(), nullptr), "sample");
  const std::vector<int32_t> drawn = ids.download();
  const std::vector<float> got_logprobs = logprobs.download();
  report.same_bits(drawn, next.download(), "next ids");
  const Buffer<int32_t> id1(1);
  const Buffer<float> max1(1), log_sum1(1), entropy1(1), logprob1(1);
  int64_t moved = 0;
  for (const int64_t r : some_rows(rows, vocabulary > 20000 ? 12 : 64)) {
    const std::vector<float> x = logits.download(r * vocabulary, vocabulary);
    const DrawSettings& s = setup.settings[r];
    const std::string what = "row " + std::to_string(r) + " drew " + std::to_string(drawn[r]);
    const RowReference stats = reference_stats(x, s.inv_temperature);
    if (s.greedy) {
      report.check(drawn[r] == likeliest(x, s), what + ", greedy");
    } else {
      // top_p's own border is a rounding away as well.
      Distribution d = distribution(x, s);
      const bool exact = d.ids[draw(d, setup.uniforms[r])] == drawn[r];
      bool ok = exact || acceptable(d, setup.uniforms[r], drawn[r]);
      for (const double shift : {-1e-6, 1e-6}) {
        DrawSettings near = s;
        near.top_p = s.top_p < 1 ? s.top_p + shift : 1;
        ok = ok || acceptable(distribution(x, near), setup.uniforms[r], drawn[r]);
      }
      moved += exact ? 0 : 1;
      report.check(ok, what + " for " + std::to_string(d.ids[draw(d, setup.uniforms[r])]));
    }
    if (drawn[r] >= 0)
      report.close({got_logprobs[r]}, {x[drawn[r]] * s.inv_temperature - stats.max - stats.log_sum}, 1e-6, 2e-6,
                   "logprob");
    const SamplerInputs alone{{logits + r * vocabulary, 1, vocabulary, vocabulary},
                              drawable,
                              inv + r,
                              settings + r,
                              positions + r,
                              barred,
                              setup.narrows};
    must(sample(alone, {id1, nullptr, logprob1, {max1, log_sum1, entropy1}}, workspace.get(), nullptr), "one row");
    // A row that does not begin at a 16-byte border is read otherwise, and must give the same.
    report.check(id1.download()[0] == drawn[r], what + ", alone " + std::to_string(id1.download()[0]));
    report.same_bits(logprobs.download(r, 1), logprob1.download(), "logprob of a row alone");
  }
  report.check(moved <= 1, std::to_string(moved) + " draws moved by rounding");
  report.time("sample " + std::to_string(rows) + "x" + std::to_string(vocabulary) + " kind " + std::to_string(kind),
              4.0 * static_cast<double>(rows * vocabulary), [&] { return sample(in, out, workspace.get(), nullptr); });
}

// How often each id comes is what the distribution says: a chi-square over a small vocabulary.
void frequencies(Report& report, bool narrowed) {
  const int64_t rows = 40000, vocabulary = 12;
  std::vector<float> row{0.5f, -1, 2, 0.1f, 1.5f, -3, 0, 1, 2, -0.5f, 0.7f, 1.2f}, x;
  std::vector<SamplingRow> list;
  for (int64_t r = 0; r < rows; ++r) {
    x.insert(x.end(), row.begin(), row.end());
    SamplingRow s{};
    s.philox_key = philox_key(5, 1), s.prompt_id = static_cast<uint64_t>(r), s.top_p = 1, s.top_k = narrowed ? 6 : 0;
    list.push_back(s);
  }
  const Buffer<float> logits(x), inv(std::vector<float>(rows, 1.0f)), max(rows), log_sum(rows);
  const Buffer<SamplingRow> settings(list);
  const Buffer<int32_t> positions(std::vector<int32_t>(rows, 0)), ids(rows);
  const Buffer<char> workspace(static_cast<int64_t>(sampler_workspace_bytes(rows, vocabulary)));
  must(sample({{logits, rows, vocabulary, vocabulary}, vocabulary, inv, settings, positions, nullptr, narrowed},
              {ids, nullptr, nullptr, {max, log_sum, nullptr}}, workspace.get(), nullptr),
       "sample");
  DrawSettings s;
  s.num_drawable = vocabulary, s.top_k = narrowed ? 6 : -1;
  const Distribution d = distribution(row, s);
  std::vector<int64_t> counts(vocabulary);
  for (const int32_t id : ids.download()) ++counts[std::clamp<int32_t>(id, 0, vocabulary - 1)];
  double chi_square = 0;
  int64_t inside = 0;
  for (size_t i = 0; i < d.ids.size(); ++i) {
    const double expected = static_cast<double>(rows) * d.weights[i] / d.total;
    chi_square += std::pow(static_cast<double>(counts[d.ids[i]]) - expected, 2) / expected;
    inside += counts[d.ids[i]];
  }
  report.check(inside == rows, "ids outside of top_k were drawn");
  report.check(chi_square < 40, "chi-square " + std::to_string(chi_square) + " of at most 11 degrees of freedom");
}

// What cannot be drawn from says so; a barred favourite leaves the rest as they are.
void refusals(Report& report) {
  const int64_t vocabulary = 3000, rows = 6;
  std::vector<float> x(rows * vocabulary, 0.0f);
  x[7] = NAN;                                                         // 0: not finite
  for (int64_t r = 1; r < rows; ++r) x[r * vocabulary + 11] = 60.0f;  // barred in rows 1 … 4
  for (int64_t r = 3; r < 5; ++r)
    for (int64_t i = 0; i < vocabulary; ++i)
      if (i != 11) x[r * vocabulary + i] = -INFINITY;  // nothing else has any probability
  std::vector<SamplingRow> list(rows, SamplingRow{});
  for (int64_t r = 0; r < rows; ++r) {
    list[r].top_p = r == 2 || r == 4 ? 0.5 : 1.0;
    list[r].min_tokens = 1, list[r].num_barred = 1, list[r].prompt_id = static_cast<uint64_t>(r);
  }
  list[5].min_tokens = 0;
  const Buffer<float> logits(x), inv(std::vector<float>(rows, 1.0f)), max(rows), log_sum(rows), logprobs(rows);
  const Buffer<SamplingRow> settings(list);
  const Buffer<int32_t> positions(std::vector<int32_t>(rows, 0)), barred(std::vector<int32_t>{11}), ids(rows),
      next(rows);
  const Buffer<char> workspace(static_cast<int64_t>(sampler_workspace_bytes(rows, vocabulary)));
  must(sample({{logits, rows, vocabulary, vocabulary}, vocabulary, inv, settings, positions, barred, true},
              {ids, next, logprobs, {max, log_sum, nullptr}}, workspace.get(), nullptr),
       "sample");
  const std::vector<int32_t> got = ids.download(), following = next.download();
  report.check(got[0] == kNotFinite && following[0] == 0 && std::isnan(logprobs.download()[0]), "a NaN row");
  for (const int r : {1, 2})
    report.check(got[r] >= 0 && got[r] != 11, "beside a barred favourite: " + std::to_string(got[r]));
  for (const int r : {3, 4}) report.check(got[r] == kAllBarred, "nothing to draw: " + std::to_string(got[r]));
  report.check(got[5] == 11, "barred no longer");
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](const std::string& name, bool bench, std::function<void(Report&)> run) {
    list.push_back({name, bench, std::move(run)});
  };
  for (const float scale : {1.0f, 20.0f}) {
    add("head", false, [=](Report& r) { head(r, {1, 1, 4, scale}); });
    add("head", false, [=](Report& r) { head(r, {3, 37, 37, scale}); });
    add("head", false, [=](Report& r) { head(r, {7, 1024, 1024, scale}); });
    add("head", false, [=](Report& r) { head(r, {6, 8193, 8196, scale}); });
    add("head", false, [=](Report& r) { head(r, {5, 50257, 50257, scale}); });
  }
  add("odd logits", false, odd_logits);
  for (const auto kind : {SamplerCase::kWhole, SamplerCase::kNarrowed, SamplerCase::kMixed}) {
    add("sampler", false, [=](Report& r) { sampler(r, {40, 7, 7, 1.0f, kind}); });
    add("sampler", false, [=](Report& r) { sampler(r, {64, 1000, 990, 3.0f, kind}); });
    add("sampler", false, [=](Report& r) { sampler(r, {33, 4097, 4097, 0.1f, kind}); });
  }
  add("sampler", false, [](Report& r) { sampler(r, {20, 8200, 8190, 2.0f, SamplerCase::kTies}); });
  add("frequencies", false, [](Report& r) { frequencies(r, false); });
  add("frequencies", false, [](Report& r) { frequencies(r, true); });
  add("refusals", false, refusals);

  add("head", true, [](Report& r) { head(r, {1024, 151936, 151936, 3.0f}); });
  add("head", true, [](Report& r) { head(r, {12, 262144, 262144, 3.0f}); });
  add("sampler", true, [](Report& r) { sampler(r, {1024, 151936, 151669, 3.0f, SamplerCase::kWhole}); });
  add("sampler", true, [](Report& r) { sampler(r, {64, 151936, 151669, 3.0f, SamplerCase::kWhole}); });
  add("sampler", true, [](Report& r) { sampler(r, {1024, 151936, 151669, 3.0f, SamplerCase::kNarrowed}); });
  add("sampler", true, [](Report& r) { sampler(r, {128, 151936, 151669, 3.0f, SamplerCase::kNarrowed}); });
  for (const int64_t rows : {1024, 128})
    add("sampler", true, [=](Report& r) { sampler(r, {rows, 151936, 151669, 3.0f, SamplerCase::kUsual}); });
  add("sampler", true, [](Report& r) { sampler(r, {12, 262144, 262144, 3.0f, SamplerCase::kTies}); });
  return list;
}

}  // namespace
}  // namespace tandem::cuda::test

int main(int argc, char** argv) { return tandem::cuda::test::run_cases(tandem::cuda::test::cases(), argc, argv); }
