// draw_token() where every tensor-parallel rank has some columns of the logits. All ranks ask for the same draws and
// get the same. Rows that are narrowed (top_k, top_p, min_p) or whose likeliest ids are asked for are gathered; the
// others never are.
#pragma once

#include <exception>

#include "model/split_logits.h"
#include "rollout/sampler.h"

namespace tandem {

struct SplitDraw {
  std::span<const float> own;  // this rank's columns of the row
  const SamplingParams& params;
  bool may_end;
  double uniform;
};
struct SplitDrawn {
  DrawnToken token;
  std::exception_ptr failure;  // DataError: this draw's alone
};
std::vector<SplitDrawn> draw_tokens(TensorSplit& split, std::span<const SplitDraw> draws, int64_t num_drawable);

}  // namespace tandem
