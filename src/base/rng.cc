#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

double to_unit(uint32_t hi, uint32_t lo) {
  const uint64_t bits = (uint64_t{hi} << 32 | lo) >> 12;  // one more would round up to 1
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

// splitmix64's finaliser: spreads ids that differ in few bits over the whole key.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    if (round > 0) k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
  }
  return c;
}

uint64_t philox_key(uint64_t seed, uint64_t policy_version) {
  return mix(seed + 0x9e3779b97f4a7c15ULL * (mix(policy_version + 1)));
}

double uniform_for(const SampleKey& key, uint32_t position) {
  const uint64_t k = philox_key(key.seed, key.policy_version);
  const auto r = philox4x32(
      {static_cast<uint32_t>(key.prompt_id), static_cast<uint32_t>(key.prompt_id >> 32), key.sample_index, position},
      {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)});
  return to_unit(r[0], r[1]);
}

uint64_t Philox::next() {
  const auto r = philox4x32({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                             static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                            {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  ++counter_;
  return uint64_t{r[0]} << 32 | r[1];
}

uint64_t Philox::below(uint64_t bound) {
  const uint64_t limit =
      UINT64_MAX - UINT64_MAX % bound;  // reject the ragged top so that every value is equally likely
  uint64_t x = next();
  while (x >= limit) x = next();
  return x % bound;
}

double Philox::uniform() {
  const uint64_t x = next();
  return to_unit(static_cast<uint32_t>(x >> 32), static_cast<uint32_t>(x));
}

double Philox::normal() {
  const double radius = std::sqrt(-2.0 * std::log(uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace tandem
