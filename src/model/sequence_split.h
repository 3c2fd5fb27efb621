// Context parallelism by heads (Ulysses; Jacobs et al. 2023, arXiv:2309.14509): in training every rank has some of a
// batch's tokens, whatever sequences they belong to, and around attention all tokens of some heads. A token's row and a
// head's attention know nothing of their neighbours, so a forward pass has the bits of one rank's; gradients of weights
// are sums over the ranks' tokens. CPU only. All ranks call the same methods in the same order. Not thread-safe.
#pragma once

#include <memory>
#include <span>

#include "kernels/kernels.h"
#include "parallel/communicator.h"
#include "parallel/placement.h"

namespace tandem {

class SequenceSplit {
 public:
  explicit SequenceSplit(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  int size() const { return ranks_->size(); }
  // The tokens of a batch that this rank has: rows of every matrix but attention's.
  Range rows(int64_t tokens) const;
  // The values add up over ranks; each of them is set on one rank and zero on the others.
  void collect(std::span<double> values);

  // Attention of a packed batch. qkv_RN has this rank's tokens.
  struct Attended {
    at::Tensor rows_RQ;                              // the outcome for this rank's tokens
    at::Tensor qkv_TN, kv, heads_THD, logsumexp_TH;  // of this rank's heads, for all tokens: backward needs them
  };
  Attended attend(const at::Tensor& qkv_RN, const kernels::QkvTransform& transform, const kernels::PlacedBatch& batch);
  // The gradient of qkv_RN. Adds into the norms' gradients what this rank's heads give.
  at::Tensor attend_backward(const at::Tensor& dout_RQ, const Attended& forward, const kernels::QkvTransform& transform,
                             const kernels::PlacedBatch& batch, at::Tensor& dq_norm_D, at::Tensor& dk_norm_D);

 private:
  struct Columns {  // of a matrix, so many for each key head, side by side
    int64_t first, per_key_head;
  };
  Range key_heads(int64_t all, int rank) const;
  kernels::HeadShape own_heads(const kernels::HeadShape& all) const;
  int64_t width(std::span<const Columns> columns, int64_t key_heads, int rank) const;
  at::Tensor to_heads(const at::Tensor& rows_RN, std::span<const Columns> columns, int64_t key_heads, int64_t tokens);
  at::Tensor to_rows(const at::Tensor& heads_TN, std::span<const Columns> columns, int64_t key_heads);

  std::unique_ptr<Communicator> ranks_;
};

}  // namespace tandem
