// How a step's samples become optimizer steps and passes: epochs, mini-batches, micro-batches. For policy and critic.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "model/flops.h"
#include "train/optimizer.h"
#include "train/packing.h"
#include "train/training_sample.h"

namespace tandem {

class FullyShardedModel;
class Pipeline;

// The ranks that an update is spread over; all null on one rank.
struct UpdateRanks {
  FullyShardedModel* sharded = nullptr;
  Pipeline* pipeline = nullptr;  // its stage is what `sharded` spreads, if there is that
};

// A mini-batch whose loss or gradient is not finite. The weights are still those that it met.
struct NonFiniteUpdate {
  std::span<const TrainingSample> samples;
  double loss = 0, grad_norm = 0;
  int64_t optimizer_steps = 0;  // made before it
  bool unchanged = false;       // none of them since the samples were drawn
};

struct BatchingOptions {
  int64_t mini_batch_samples = 0;  // samples of an optimizer step
  int64_t epochs = 1;
  bool shuffle = false;  // draw new mini-batches in each epoch after the first, by `seed`
  uint64_t seed = 42;
  int64_t max_micro_tokens = 4096;
  int64_t max_micro_samples = 0;  // 0: only tokens count
  size_t unit_samples = 1;        // so many neighbours come into the same micro-batch
  // Micro-batches are cut so that all activations fit; a longer sample, or a group whose prompt is worth sharing, keeps
  // those of the last blocks and recomputes the others.
  int64_t activation_bytes = 64 << 20;
  bool may_recompute = true;
  // Told of a mini-batch that cannot be learnt from; true: leave it out and go on. Empty: as false.
  std::function<bool(const NonFiniteUpdate&)> on_nonfinite;
};

using OnTokens = std::function<void(int64_t tokens)>;  // so many more response tokens are through; may be empty

// The order in which an epoch visits the samples; those of one prompt stay together. `stream` varies with the step.
std::vector<TrainingSample> epoch_samples(std::span<const TrainingSample> samples, const BatchingOptions& options,
                                          int64_t epoch, uint64_t stream);

// Cuts an epoch into mini-batches; the last one may be smaller.
std::vector<std::span<const TrainingSample>> mini_batches(std::span<const TrainingSample> samples, int64_t size);

PackItem pack_item(const TrainingSample& sample);
using SampleList = std::span<const TrainingSample* const>;

// Neighbours of one prompt compute it once.
SequenceWork work_of_samples(SampleList samples);

// From the last block's output to its gradient, for the samples of one micro-batch; `first` of all samples is its
// first.
using HeadPass =
    std::function<at::Tensor(size_t first, SampleList samples, const PackedBatch& batch, const at::Tensor& x_TE)>;

std::vector<double> temperatures_of(SampleList samples);

// Where each micro-batch of these samples ends, given what a token's activations take.
int64_t activation_bytes_per_token(const Decoder& decoder);
// How many blocks, the last ones, can keep all activations of so many tokens.
size_t kept_blocks(const Decoder& decoder, int64_t num_tokens, const BatchingOptions& options);
// Leaves what this rank of a decoder that splits sequences has to predict, and its rows.
void keep_own_targets(PackedBatch& batch, const Decoder& decoder);
std::vector<size_t> micro_batch_ends(int64_t bytes_per_token, SampleList samples, const BatchingOptions& options);

// Forward, head and backward of all samples in micro-batches; adds into `gradients`. With `sharded` the gradients of
// each micro-batch go to their owners.
void forward_backward(const Decoder& decoder, SampleList samples, const BatchingOptions& options, const HeadPass& head,
                      DecoderWeights& gradients, const OnTokens& on_tokens, FullyShardedModel* sharded = nullptr);

// One optimizer step. Where `loss` or the gradient is not finite the weights stay unchanged: nothing is returned if
// on_nonfinite leaves the mini-batch out, else it is a DataError. `lr_key` is that of the learning rate.
// On several ranks (`split`: of a tensor-parallel decoder) it is made on this rank's parts.
std::optional<Optimizer::StepResult> guarded_step(Optimizer& optimizer, DecoderWeights& weights,
                                                  const DecoderWeights& gradients, double loss, std::string_view lr_key,
                                                  const BatchingOptions& options,
                                                  std::span<const TrainingSample> samples, bool unchanged = false,
                                                  const UpdateRanks& ranks = {}, TensorSplit* split = nullptr);

void set_to_zero(DecoderWeights& gradients);

}  // namespace tandem
