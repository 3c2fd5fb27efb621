// What draw_token of rollout/sampler.cc must draw, in fp64: written again from its description, for the device's tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tandem::cuda::test {

struct DrawSettings {
  double inv_temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = -1, num_drawable = 0;
  std::vector<int32_t> barred;
  bool greedy = false;
};

// The ids that may come, in the order in which the inversion passes them, and their weights.
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<double> weights;
  double total = 0;
};

inline Distribution distribution(const std::vector<float>& logits, const DrawSettings& s) {
  struct Entry {
    double x;
    int32_t id;
  };
  std::vector<Entry> entries;
  for (int64_t i = 0; i < std::min<int64_t>(s.num_drawable, logits.size()); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (std::find(s.barred.begin(), s.barred.end(), id) == s.barred.end() && !std::isinf(logits[i]))
      entries.push_back({logits[i] * s.inv_temperature, id});
  }
  const bool narrowed = s.top_p < 1 || s.min_p > 0 || (s.top_k > 0 && s.top_k < static_cast<int64_t>(logits.size()));
  double top = -INFINITY;
  for (const Entry& e : entries) top = std::max(top, e.x);
  if (narrowed) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.x != b.x ? a.x > b.x : a.id < b.id; });
    if (s.top_k > 0 && s.top_k < static_cast<int64_t>(entries.size())) entries.resize(s.top_k);
    double total = 0, sum = 0;
    for (const Entry& e : entries) total += std::exp(e.x - top);
    size_t keep = 0;
    while (s.top_p < 1 && keep < entries.size() && sum < s.top_p * total) sum += std::exp(entries[keep++].x - top);
    if (s.top_p < 1) entries.resize(std::max<size_t>(keep, 1));
    std::erase_if(entries, [&](const Entry& e) { return std::exp(e.x - top) < s.min_p; });
  }
  Distribution d;
  for (const Entry& e : entries) {
    d.ids.push_back(e.id);
    d.weights.push_back(std::exp(e.x - top));
    d.total += d.weights.back();
  }
  return d;
}

// Index into `d` of the draw.
inline size_t draw(const Distribution& d, double uniform) {
  double sum = 0;
  for (size_t i = 0; i < d.ids.size(); ++i)
    if ((sum += d.weights[i]) > uniform * d.total) return i;
  return d.ids.size() - 1;
}

// The likeliest id, the lowest of equals; −1: none.
inline int32_t likeliest(const std::vector<float>& logits, const DrawSettings& s) {
  int32_t best = -1;
  for (int64_t i = 0; i < std::min<int64_t>(s.num_drawable, logits.size()); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (std::find(s.barred.begin(), s.barred.end(), id) != s.barred.end()) continue;
    if (best < 0 || logits[i] > logits[best]) best = id;
  }
  return best;
}

}  // namespace tandem::cuda::test
