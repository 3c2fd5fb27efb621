// The rule verifiers on arbitrary responses and truths (cut at the first NUL): only tandem::Error may come out, and an
// answer equals itself.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "reward/rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  tandem::RewardRequest request;
  request.solution_str = text.substr(0, cut);
  request.ground_truth = cut == text.npos ? "1" : text.substr(cut + 1);
  for (const std::string_view rule : tandem::rule_names()) {
    try {
      tandem::score_by_rule(rule, request);
    } catch (const tandem::Error&) {
    }
  }
  if (tandem::math_equal(request.solution_str, request.ground_truth) !=
      tandem::math_equal(request.ground_truth, request.solution_str))
    std::abort();
  if (!tandem::math_equal(request.ground_truth, request.ground_truth)) std::abort();
  return 0;
}
