// Pipeline parallelism in the update: every rank has consecutive blocks of the decoder and passes micro-batches on, one
// forward and one backward in turn (1F1B; Narayanan et al. 2021, arXiv:2104.04473), so that stage s of S keeps the
// activations of at most S − s micro-batches. What a rank sends travels beside its work. In rollout every rank has the
// whole decoder.
// Every method is called by all ranks together. Not thread-safe. CPU only.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <vector>

#include "model/decoder.h"
#include "parallel/communicator.h"
#include "parallel/lane.h"
#include "parallel/placement.h"
#include "train/batching.h"

namespace tandem {

class Pipeline {
 public:
  // `decoder`, with all its weights, and `world` must outlive it. ConfigError for more stages than blocks.
  Pipeline(Decoder& decoder, Communicator& world);

  void enter_training();  // the decoder lets other stages' weights go
  void enter_rollout();   // it has them all again; what this rank holds is not moved

  // This rank's blocks; what stands before them is on the first stage, what stands after them on the last, a tied
  // embedding on both. It shares its memory with the decoder.
  Decoder& stage() { return *stage_; }
  bool last() const { return rank_ + 1 == world_.size(); }

  // forward_backward() of all samples through all stages; `head` is called on the last.
  void forward_backward(SampleList samples, const BatchingOptions& options, const HeadPass& head,
                        DecoderWeights& gradients, const OnTokens& on_tokens);
  // Once all passes of a step are through: a tied embedding's gradient on both ends.
  void finish_gradients(DecoderWeights& gradients);
  // Σ over the whole model's parameters, given this rank's by parameter.
  double total(std::span<const double> by_parameter);
  // What the last stage knows, to all.
  void from_last(std::span<std::byte> bytes);

  // Between this rank's part and the whole; `gathered` brings it to every rank.
  DecoderWeights part_of(const DecoderWeights& whole) const;
  DecoderWeights gathered(const DecoderWeights& part);

 private:
  struct Edge {  // to a neighbouring stage: what goes down and what comes back
    std::unique_ptr<Communicator> activations, gradients;
  };
  struct InFlight {
    size_t begin, end;  // samples
    PackedBatch batch;
    Activations activations;
    at::Tensor dx;  // on the last stage
  };

  void forward(SampleList samples, size_t begin, size_t end, const BatchingOptions& options, const HeadPass& head);
  void backward(SampleList samples, DecoderWeights& gradients, const OnTokens& on_tokens);
  static at::Tensor receive(Communicator& from, int peer, const at::Tensor& like, int64_t rows);
  void send(Lane& lane, Communicator& to, int peer, const at::Tensor& values);
  void reshard_into(const DecoderWeights& part, const DecoderWeights& whole);

  Decoder& decoder_;
  Communicator& world_;
  int rank_;
  ParameterList list_;
  std::vector<size_t> held_;  // of the list, in the order of this rank's parameters()
  Edge before_, after_;
  std::unique_ptr<Communicator> ends_;  // first and last stage; null elsewhere
  std::unique_ptr<Decoder> stage_;
  std::deque<InFlight> in_flight_;
  std::vector<std::future<void>> sending_;
  Lane down_, up_;
};

}  // namespace tandem
