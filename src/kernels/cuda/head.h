// Statistics of softmax(logits · inv_temperature) for rows of fp32 logits: the only way in which a log-prob is computed
// on the device, by the sampler and by training alike:
//   log p(id) = (logits[id] · inv_temperature − max) − log_sum,  each operation rounded once.
// A row is cut into blocks of kStatsBlock ids, each summed by one fixed tree in fp32; the blocks add up in fp64 by
// another. A logit that is NaN or +inf makes log_sum NaN; −inf is a probability of zero.
// V up to kMaxVocabulary; row_stride (in floats) is any number ≥ V, multiples of 4 are fast.
#pragma once

#include "kernels/cuda/types.h"

namespace tandem::cuda {

constexpr int kStatsBlock = 1024;
constexpr int64_t kMaxVocabulary = 262144;

struct LogitsView {
  float* data;
  int64_t rows, vocabulary, row_stride;
};

struct RowStats {
  float *max_R, *log_sum_R;
  float* entropy_R;  // in nats; null: not wanted
};

// The blocks' statistics stay in the workspace, where the sampler finds them.
size_t row_stats_workspace_bytes(int64_t rows, int64_t vocabulary);
cudaError_t row_stats(const LogitsView& logits, const float* inv_temperature_R, const RowStats& stats, void* workspace,
                      cudaStream_t stream);

// logprob_R of targets_R; a negative target gives 0.
cudaError_t target_logprobs(const LogitsView& logits, const float* inv_temperature_R, const RowStats& stats,
                            const int32_t* targets_R, float* logprob_R, cudaStream_t stream);

// d loss / d logits from d loss / d log p(target) and d loss / d entropy (null: zeros; entropy_R then is not read):
//   inv_temperature · (dlogprob · (onehot − p) − dentropy · p · (log p + entropy))
// A row whose two gradients are zero, or without target (negative) and with dentropy zero, becomes zeros.
struct HeadGradient {
  const int32_t* targets_R;
  const float* dlogprob_R;
  const float* dentropy_R;
};
// In place.
cudaError_t logits_backward(const LogitsView& logits, const float* inv_temperature_R, const RowStats& stats,
                            const HeadGradient& gradient, cudaStream_t stream);
// To bf16 rows at dlogits + r · dlogits_stride (in bf16 elements, a multiple of 8). dlogits may be logits.data itself
// if dlogits_stride is 2 · row_stride (each row then overwrites its own first half), and must not overlap it otherwise.
cudaError_t logits_backward(const LogitsView& logits, const float* inv_temperature_R, const RowStats& stats,
                            const HeadGradient& gradient, bf16* dlogits, int64_t dlogits_stride, cudaStream_t stream);

}  // namespace tandem::cuda
