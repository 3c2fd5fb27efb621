// Pipeline parallelism in the update: every rank has consecutive blocks of the decoder and passes micro-batches on, one
// forward and one backward in turn (1F1B; Narayanan et al. 2021, arXiv:2104.04473), so that stage s of S keeps the
// activations of at most S − s micro-batches. With several chunks of blocks a rank (the interleaved schedule of the
// same paper) a micro-batch passes every rank so many times, and a rank waits so many times less for the first and the
// last. What a rank sends travels beside its work. In rollout every rank has the whole decoder, which may itself be a
// rank's part of a tensor-parallel one. Of several pipelines, each with samples of its own, the ranks of a stage may
// share its parameters fully sharded. Every method is called by all ranks together. Not thread-safe. CPU only.
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
  // `decoder`, with all its weights, must outlive it. ConfigError for more stages, or chunks of them, than blocks.
  Pipeline(Decoder& decoder, std::unique_ptr<Communicator> stages, int chunks = 1);

  // A stage that is fully sharded enters training after the pipeline, and rollout before it.
  void enter_training();  // the decoder lets its blocks go; the stage has its own
  void enter_rollout();   // it has them all again; what this rank holds is not moved

  // This rank's blocks; what stands before them is on the first stage, what stands after them on the last, a tied
  // embedding on both. It shares its memory with the decoder.
  Decoder& stage() { return *stage_; }
  bool last() const { return rank_ + 1 == stages_->size(); }
  // Of the whole model's parameters, those of the stage.
  const std::vector<size_t>& held() const { return held_; }
  // Of the stage that has most: all must cut the samples alike.
  int64_t activation_bytes_per_token() const;

  // forward_backward() of all samples through all stages; `head` is called on the last. With `sharded`, of the stage,
  // the pipelines beside this one have up to `rounds` micro-batches; it takes part in what is theirs.
  void forward_backward(SampleList samples, const BatchingOptions& options, const HeadPass& head,
                        DecoderWeights& gradients, const OnTokens& on_tokens, FullyShardedModel* sharded = nullptr,
                        size_t rounds = 0);
  // Once all passes of a step are through: a tied embedding's gradient on both ends.
  void finish_gradients(DecoderWeights& gradients);
  // What every rank knows of its parameters, for all of them.
  std::vector<double> of_all_stages(std::span<const double> by_parameter);
  // What the last stage knows, to all.
  void from_last(std::span<std::byte> bytes);

  // Between this rank's part and the whole; `gathered` brings it to every rank.
  DecoderWeights part_of(const DecoderWeights& whole) const;
  DecoderWeights gathered(const DecoderWeights& part);

 private:
  struct Edge {  // to a neighbouring stage: what goes down and what comes back
    std::unique_ptr<Communicator> activations, gradients;
    int peer = 0;  // in both
  };
  struct InFlight {
    size_t begin, end;  // samples
    PackedBatch batch;
    Activations activations;
    at::Tensor dx;  // of the last chunk of all
  };
  // Consecutive blocks of the stage, which is a pipeline's stage by itself.
  struct Chunk {
    Range blocks;  // of the stage's
    std::unique_ptr<Decoder> decoder;
    std::unique_ptr<BlockStore> store;  // the stage's, where that is sharded
    std::deque<InFlight> in_flight;
  };
  struct Step {  // of the schedule
    size_t chunk, micro_batch;
  };

  void add_chunk(int index);
  void spread(FullyShardedModel* sharded);
  bool enters(const Chunk& chunk) const { return rank_ == 0 && &chunk == &chunks_.front(); }
  bool leaves(const Chunk& chunk) const { return last() && &chunk == &chunks_.back(); }
  Step forward_step(size_t number) const;
  size_t steps_ahead() const;  // forward passes before the first backward one
  void forward(Chunk& chunk, SampleList samples, size_t begin, size_t end, const BatchingOptions& options,
               const HeadPass& head, FullyShardedModel* sharded);
  void backward(Chunk& chunk, SampleList samples, DecoderWeights& gradients, const OnTokens& on_tokens,
                FullyShardedModel* sharded);
  at::Tensor receive(Communicator& from, int peer, const TokenBatch& batch) const;
  void send(Lane& lane, Communicator& to, int peer, const at::Tensor& values);
  void reshard_into(const DecoderWeights& part, const DecoderWeights& whole);

  Decoder& decoder_;
  std::unique_ptr<Communicator> stages_;
  int rank_;
  Layout layout_;
  ParameterList list_;
  std::vector<int64_t> blocks_;  // this rank's
  std::vector<size_t> held_;     // of the list, in the order of this rank's parameters()
  Edge before_, after_;
  std::unique_ptr<Communicator> ends_;  // first and last stage; null elsewhere
  std::unique_ptr<Decoder> stage_;
  std::vector<Chunk> chunks_;
  std::vector<std::future<void>> sending_;
  Lane down_, up_;
};

}  // namespace tandem
