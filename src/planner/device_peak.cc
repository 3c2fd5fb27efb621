#include "planner/device_peak.h"

#include <cctype>

namespace tandem {
namespace {

struct KnownPeak {
  std::string_view name;
  double tflops;
};
// A name that begins with another comes first.
constexpr KnownPeak kKnownPeaks[] = {
    {"GB200", 2500}, {"B200", 2250}, {"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989}, {"H200", 989},
    {"H800", 989},   {"H20", 148},   {"A100", 312},      {"A800", 312},     {"A40", 150},  {"A30", 165},
    {"A10", 125},    {"L40S", 362},  {"L40", 181},       {"L20", 120},      {"L4", 121},
};

// Not a part of a longer word: an A4000 is no A40.
bool has_word(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  if (at == text.npos) return false;
  const auto inside = [&](size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])); };
  return !(at > 0 && inside(at - 1)) && !inside(at + word.size());
}

}  // namespace

std::optional<double> known_peak_tflops(std::string_view gpu_name) {
  for (const auto& [name, tflops] : kKnownPeaks)
    if (has_word(gpu_name, name)) return tflops;
  return std::nullopt;
}

}  // namespace tandem
