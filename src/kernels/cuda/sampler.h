// Draws a token from each row of logits, as rollout/sampler.cc does on the CPU: softmax(logits / temperature) over the
// drawable ids; top_k, then top_p, then min_p narrow it; what is left is renormalised and inverted at a uniform number
// that is a pure function of the row's key and position (base/rng.h). Without narrowing the running sum goes over ids
// in ascending order, with it from the likeliest id down (of equals the lowest first). Log-probs and entropies are
// those of the whole row, from the same statistics as training's (head.h).
// A row's draw depends on its own logits and settings alone.
#pragma once

#include "kernels/cuda/head.h"

namespace tandem::cuda {

constexpr int kMaxBarredIds = 16;

// One row's settings, filled on the host.
struct SamplingRow {
  uint64_t philox_key;  // philox_key(seed, policy_version) of base/rng.h
  uint64_t prompt_id;
  double top_p, min_p;  // 1, 0: off
  int32_t top_k;        // ≤ 0: off
  uint32_t sample_index;
  uint32_t min_tokens;    // before this position barred ids are not drawn
  int32_t num_barred;     // at most kMaxBarredIds
  int32_t barred_offset;  // into SamplerInputs::barred_ids
  int32_t greedy;         // 1: the likeliest id (of equals the lowest), whatever the rest says
};

// All arrays lie in device memory and are read when the kernels run, so a captured graph sees new values.
struct SamplerInputs {
  LogitsView logits;
  int64_t num_drawable;            // ids from there on are never drawn
  const float* inv_temperature_R;  // 1 for greedy rows
  const SamplingRow* rows_R;
  const int32_t* positions_R;  // response tokens drawn before this one
  const int32_t* barred_ids;   // null where no row has any
  bool any_narrowing;          // false: no row uses top_k, top_p or min_p, and their kernel is not launched
};

// Null: not wanted. An id is kNotFinite or kAllBarred where nothing could be drawn (its log-prob is NaN, its next id
// 0): the host must look.
constexpr int32_t kNotFinite = -1, kAllBarred = -2;
struct SamplerOutputs {
  int32_t* ids_R;
  int32_t* next_ids_R;
  float* logprobs_R;
  RowStats stats;  // max and log_sum are wanted
};

size_t sampler_workspace_bytes(int64_t rows, int64_t vocabulary);
cudaError_t sample(const SamplerInputs& inputs, const SamplerOutputs& outputs, void* workspace, cudaStream_t stream);

}  // namespace tandem::cuda
