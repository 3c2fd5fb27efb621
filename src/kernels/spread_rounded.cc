#include <algorithm>
#include <bit>

#include "base/rng.h"
#include "kernels/device_ops.h"
#include "kernels/parallel_for.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kDraws = 8;  // of 16 bits, from one counter

}  // namespace

// Between two neighbours of bf16 lie 65,536 fp32 values, whose bits count up with their magnitude.
void spread_rounded(at::Tensor& values, uint64_t key) {
  if (on_device(values)) return device_ops().spread_rounded(values, key);
  const std::span all(f32(values), static_cast<size_t>(values.numel()));
  const PhiloxKey words{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  parallel_for((values.numel() + kDraws - 1) / kDraws, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxCounter random =
          philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0}, words);
      const std::span some = all.subspan(static_cast<size_t>(block * kDraws))
                                 .first(static_cast<size_t>(std::min(kDraws, values.numel() - block * kDraws)));
      for (size_t i = 0; i < some.size(); ++i) {
        const auto bits = std::bit_cast<uint32_t>(some[i]);
        const uint32_t draw = random[i / 2] >> (i % 2 * 16) & 0xffffu;
        // Of the two ends, which round to even, neither is taken.
        if ((bits & 0xffffu) == 0 && (bits & 0x7fffffffu) != 0)
          some[i] = std::bit_cast<float>(bits + std::max(draw, 1u) - 0x8000u);
      }
    }
  });
}

}  // namespace tandem::kernels
