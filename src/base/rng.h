// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A value is a pure function of (key, counter), so a draw never depends on batch slot, thread or time.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key);

// What a sampled token depends on. `position` counts response tokens of the sample.
struct SampleKey {
  uint64_t seed = 0;
  uint64_t policy_version = 0;
  uint64_t prompt_id = 0;
  uint32_t sample_index = 0;
};

// The part of the key that all samples of a policy version share.
uint64_t philox_key(uint64_t seed, uint64_t policy_version);

// Uniform in (0, 1), with 52 random bits.
double uniform_for(const SampleKey& key, uint32_t position);

// A stream for shuffles and initial weights. Not thread-safe; copy it to fork it.
class Philox {
 public:
  explicit Philox(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  uint64_t next();                 // 64 random bits
  uint64_t below(uint64_t bound);  // uniform in [0, bound), bound > 0
  double uniform();                // in (0, 1)
  double normal();                 // mean 0, variance 1 (Box-Muller)

 private:
  uint64_t seed_, stream_, counter_ = 0;
};

}  // namespace tandem
