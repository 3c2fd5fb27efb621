#include "train/pipeline.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"
#include "model/placements.h"
#include "parallel/collectives.h"
#include "parallel/reshard.h"
#include "train/fsdp.h"

namespace tandem {
namespace {

std::span<std::byte> bytes_of_tensor(const at::Tensor& tensor) {
  return bytes_of(kernels::f32(tensor), static_cast<size_t>(tensor.numel()));
}

at::Tensor unset_like(const at::Tensor& like) { return at::empty(like.sizes(), like.options()); }

LayerWeights unset_layer(const LayerWeights& like) {
  DecoderWeights alone;
  alone.layers = {like};
  return mapped(alone, unset_like).layers[0];
}

// Every parameter in one piece, as long as it is here: where tensor parallelism left a part of it, all stages of that
// rank have the like part.
ParameterList as_it_lies(ParameterList list, const DecoderWeights& weights) {
  const auto here = parameters(weights);
  check(here.size() == list.parameters.size(), "the architecture's list is not the decoder's");
  for (size_t p = 0; p < here.size(); ++p)
    list.parameters[p].tensors = {{here[p].name, here[p].tensor.numel(), 1, Placement::replicate()}};
  return list;
}

// The members of a small group among all ranks; null for the others, who must take part in making it.
std::unique_ptr<Communicator> group_of(Communicator& world, const std::vector<int>& members) {
  const bool member = std::ranges::find(members, world.rank()) != members.end();
  auto group = world.split(member ? members : std::vector<int>{world.rank()});
  return member ? std::move(group) : nullptr;
}

// A chunk's blocks among the stage's.
class ChunkStore : public BlockStore {
 public:
  ChunkStore(BlockStore& stage, int64_t first) : stage_(stage), first_(static_cast<size_t>(first)) {}
  const LayerWeights& weights(size_t block) override { return stage_.weights(first_ + block); }
  void gradients_ready(size_t block) override { stage_.gradients_ready(first_ + block); }

 private:
  BlockStore& stage_;
  size_t first_;
};

// Of the gradients of a stage, those of a chunk.
DecoderWeights chunk_of(const DecoderWeights& stage, const Range& blocks) {
  DecoderWeights part = stage;
  part.layers.assign(stage.layers.begin() + blocks.begin, stage.layers.begin() + blocks.end);
  return part;
}

}  // namespace

Pipeline::Pipeline(Decoder& decoder, std::unique_ptr<Communicator> stages, int chunks)
    : decoder_(decoder),
      stages_(std::move(stages)),
      rank_(stages_->rank()),
      layout_{.pp = stages_->size(), .chunks = chunks},
      list_(as_it_lies(placements(decoder.config()), decoder.weights())) {
  check_layout(decoder.config(), layout_);
  blocks_ = blocks_of_stage(list_.num_blocks, rank_, layout_);
  for (size_t p = 0; p < list_.parameters.size(); ++p)
    if (holds(list_, list_.parameters[p], layout_, rank_)) held_.push_back(p);
  // With chunks the last stage hands over to the first.
  const int size = stages_->size(), edges = chunks > 1 ? size : size - 1;
  for (int upper = 0; upper < edges; ++upper) {
    const int lower = (upper + 1) % size;
    const std::vector<int> members{std::min(upper, lower), std::max(upper, lower)};
    Edge edge{group_of(*stages_, members), group_of(*stages_, members), rank_ == members[0] ? 1 : 0};
    if (rank_ == lower)
      before_ = std::move(edge);
    else if (rank_ == upper)
      after_ = std::move(edge);
  }
  if (size > 1) ends_ = group_of(*stages_, {0, size - 1});
  ModelConfig config = decoder.config();
  config.num_hidden_layers = std::ssize(blocks_);
  stage_ = std::make_unique<Decoder>(config, part_of(decoder.weights()), decoder.max_positions());
  stage_->split_by(decoder.split());
  stage_->split_sequences_by(decoder.sequences());
  chunks_.resize(static_cast<size_t>(chunks));
  for (int i = 0; i < chunks; ++i) add_chunk(i);
}

void Pipeline::add_chunk(int index) {
  Chunk& chunk = chunks_[static_cast<size_t>(index)];
  const int64_t length = stage_blocks(list_.num_blocks, rank_ + index * layout_.pp, layout_.pp * layout_.chunks).size();
  chunk.blocks.begin = index == 0 ? 0 : chunks_[static_cast<size_t>(index) - 1].blocks.end;
  chunk.blocks.end = chunk.blocks.begin + length;
  ModelConfig config = stage_->config();
  config.num_hidden_layers = length;
  chunk.decoder = std::make_unique<Decoder>(config, chunk_of(stage_->weights(), chunk.blocks), stage_->max_positions());
  chunk.decoder->split_by(decoder_.split());
  chunk.decoder->split_sequences_by(decoder_.sequences());
}

// The same tensors, less what other stages hold.
DecoderWeights Pipeline::part_of(const DecoderWeights& whole) const {
  DecoderWeights part;
  for (const int64_t block : blocks_) part.layers.push_back(whole.layers[static_cast<size_t>(block)]);
  const bool tied = whole.lm_head_VE.is_same(whole.embed_VE);
  if (rank_ == 0 || (last() && tied)) part.embed_VE = whole.embed_VE;
  if (!last()) {
    if (tied) part.lm_head_VE = part.embed_VE;
    return part;
  }
  part.final_norm_E = whole.final_norm_E;
  part.lm_head_VE = whole.lm_head_VE;
  part.value_head_1E = whole.value_head_1E, part.value_bias_1 = whole.value_bias_1;
  return part;
}

void Pipeline::reshard_into(const DecoderWeights& part, const DecoderWeights& whole) {
  const auto from = parameters(part), to = parameters(whole);
  check(from.size() == held_.size() && to.size() == list_.parameters.size(), "a stage's parameters are not its list's");
  ReshardMemory memory;
  memory.from = [&](size_t p) {
    const auto place = std::ranges::lower_bound(held_, p) - held_.begin();
    return static_cast<std::byte*>(from[static_cast<size_t>(place)].tensor.data_ptr());
  };
  memory.to = [&](size_t p) { return static_cast<std::byte*>(to[p].tensor.data_ptr()); };
  reshard(*stages_, plan_reshard(list_, layout_, {.dp_replicate = layout_.pp}), memory);
}

DecoderWeights Pipeline::gathered(const DecoderWeights& part) {
  DecoderWeights like = decoder_.weights();
  like.layers.assign(like.layers.size(), part.layers[0]);
  const DecoderWeights whole = mapped(like, unset_like);
  reshard_into(part, whole);
  return whole;
}

void Pipeline::enter_training() {
  for (LayerWeights& layer : decoder_.weights().layers) layer = {};
}

void Pipeline::enter_rollout() {
  DecoderWeights& whole = decoder_.weights();
  if (whole.layers[0].qkv.weight_NE.defined()) return;
  const std::vector<LayerWeights>& own = stage_->weights().layers;
  for (LayerWeights& layer : whole.layers) layer = unset_layer(own[0]);
  for (size_t i = 0; i < own.size(); ++i) whole.layers[static_cast<size_t>(blocks_[i])] = own[i];
  reshard_into(stage_->weights(), whole);
}

at::Tensor Pipeline::receive(Communicator& from, int peer, const TokenBatch& batch) const {
  at::Tensor values = kernels::empty({chunks_[0].decoder->training_rows(batch).size(), stage_->config().hidden_size});
  const ReceivePart part{peer, bytes_of_tensor(values)};
  from.exchange("hand over between stages", {}, {&part, 1});
  return values;
}

void Pipeline::send(Lane& lane, Communicator& to, int peer, const at::Tensor& values) {
  sending_.push_back(lane.run([&to, peer, values] {
    const SendPart part{peer, bytes_of_tensor(values)};
    to.exchange("hand over between stages", {&part, 1}, {});
  }));
}

void Pipeline::forward(Chunk& chunk, SampleList samples, size_t begin, size_t end, const BatchingOptions& options,
                       const HeadPass& head, FullyShardedModel* sharded) {
  std::vector<PackItem> items;
  for (size_t i = begin; i < end; ++i) items.push_back(pack_item(*samples[i]));
  InFlight& pass = chunk.in_flight.emplace_back();
  pass.begin = begin, pass.end = end;
  pass.batch = pack(items);
  at::Tensor x;
  if (!enters(chunk)) x = receive(*before_.activations, before_.peer, pass.batch.tokens);
  // All that a stage may have in flight must fit.
  const int64_t in_flight = pass.batch.tokens.num_tokens() * static_cast<int64_t>(steps_ahead() + 1);
  pass.activations =
      chunk.decoder->forward_keeping(pass.batch.tokens, kept_blocks(*chunk.decoder, in_flight, options), x);
  if (!leaves(chunk)) return send(down_, *after_.activations, after_.peer, pass.activations.x_TE);
  if (sharded != nullptr) sharded->finish_gradients();  // the head's may be on their way from the pass before
  keep_own_targets(pass.batch, *chunk.decoder);
  pass.dx = head(begin, samples.subspan(begin, end - begin), pass.batch, pass.activations.x_TE);
}

void Pipeline::backward(Chunk& chunk, SampleList samples, DecoderWeights& gradients, const OnTokens& on_tokens,
                        FullyShardedModel* sharded) {
  InFlight pass = std::move(chunk.in_flight.front());
  chunk.in_flight.pop_front();
  at::Tensor dx = pass.dx;
  if (!leaves(chunk)) dx = receive(*after_.gradients, after_.peer, pass.batch.tokens);
  if (sharded != nullptr) sharded->finish_gradients();
  DecoderWeights part = chunk_of(gradients, chunk.blocks);
  if (!enters(chunk)) {
    dx = chunk.decoder->blocks_backward(pass.batch.tokens, std::move(pass.activations), dx, part);
    send(up_, *before_.gradients, before_.peer, dx);
  } else {
    chunk.decoder->backward(pass.batch.tokens, std::move(pass.activations), dx, part);
  }
  if (&chunk != &chunks_.front()) return;
  int64_t tokens = 0;
  for (size_t i = pass.begin; i < pass.end; ++i) tokens += static_cast<int64_t>(num_tokens(*samples[i]));
  if (on_tokens) on_tokens(tokens);
}

int64_t Pipeline::activation_bytes_per_token() const {
  size_t most = 0;
  for (int stage = 0; stage < layout_.pp; ++stage)
    most = std::max(most, blocks_of_stage(list_.num_blocks, stage, layout_).size());
  const Decoder& chunk = *chunks_[0].decoder;
  return tandem::activation_bytes_per_token(chunk) / chunk.config().num_hidden_layers * static_cast<int64_t>(most);
}

// Micro-batches go in groups of as many as there are stages: a group through the first chunk, then through the next.
Pipeline::Step Pipeline::forward_step(size_t number) const {
  const size_t stages = static_cast<size_t>(layout_.pp), round = stages * chunks_.size();
  return {number % round / stages, number / round * stages + number % stages};
}

size_t Pipeline::steps_ahead() const {
  const auto after = static_cast<size_t>(layout_.pp - 1 - rank_);
  return chunks_.size() == 1 ? after : 2 * after + (chunks_.size() - 1) * static_cast<size_t>(layout_.pp);
}

void Pipeline::spread(FullyShardedModel* sharded) {
  for (Chunk& chunk : chunks_) {
    chunk.store = sharded != nullptr ? std::make_unique<ChunkStore>(*sharded, chunk.blocks.begin) : nullptr;
    chunk.decoder->keep_blocks_in(chunk.store.get());
    for (LayerWeights& layer : chunk.decoder->weights().layers)
      if (sharded != nullptr) layer = {};
  }
}

void Pipeline::forward_backward(SampleList samples, const BatchingOptions& options, const HeadPass& head,
                                DecoderWeights& gradients, const OnTokens& on_tokens, FullyShardedModel* sharded,
                                size_t rounds) {
  const auto ends = micro_batch_ends(activation_bytes_per_token(), samples, options);
  rounds = std::max(rounds, ends.size());
  spread(sharded);
  // The ranks that share a stage gather its blocks in the same order, those that have nothing to compute too.
  const auto forward_of = [&](size_t number) {
    const auto [c, m] = forward_step(number);
    if (m < ends.size()) {
      forward(chunks_[c], samples, m == 0 ? 0 : ends[m - 1], ends[m], options, head, sharded);
    } else if (m < rounds) {
      sharded->idle_forward(chunks_[c].blocks);
    }
  };
  const auto backward_of = [&](size_t number) {
    auto [c, m] = forward_step(number);
    c = chunks_.size() - 1 - c;
    if (m >= rounds) return;
    if (m < ends.size()) {
      backward(chunks_[c], samples, gradients, on_tokens, sharded);
    } else {
      sharded->idle_backward(chunks_[c].blocks);
    }
    // What stands outside the blocks is through: the head with the last chunk, the embedding with the first.
    if (sharded != nullptr && c == (last() ? chunks_.size() - 1 : 0)) sharded->finish_micro_batch();
  };
  size_t padded = rounds;
  while (chunks_.size() > 1 && padded % static_cast<size_t>(layout_.pp) != 0) ++padded;
  const size_t steps = padded * chunks_.size(), ahead = std::min(steps, steps_ahead());
  for (size_t i = 0; i < ahead; ++i) forward_of(i);
  for (size_t i = 0; i < steps; ++i) {
    if (i + ahead < steps) forward_of(i + ahead);
    backward_of(i);
  }
  for (std::future<void>& sent : sending_) sent.get();
  sending_.clear();
}

void Pipeline::finish_gradients(DecoderWeights& gradients) {
  if (!ends_ || !gradients.embed_VE.defined() || !gradients.lm_head_VE.is_same(gradients.embed_VE)) return;
  all_reduce(*ends_, "gradient of the tied embedding",
             std::span(kernels::f32(gradients.embed_VE), static_cast<size_t>(gradients.embed_VE.numel())));
}

std::vector<double> Pipeline::of_all_stages(std::span<const double> by_parameter) {
  std::string mine(reinterpret_cast<const char*>(by_parameter.data()), by_parameter.size_bytes());
  const auto texts = all_gather_text(*stages_, "norm of the gradient", mine);
  std::vector<double> all(list_.parameters.size());
  for (int rank = 0; rank < stages_->size(); ++rank) {
    size_t next = 0;
    for (size_t p = 0; p < all.size(); ++p)
      if (holds(list_, list_.parameters[p], layout_, rank))
        std::memcpy(&all[p], texts[static_cast<size_t>(rank)].data() + sizeof(double) * next++, sizeof(double));
  }
  return all;
}

void Pipeline::from_last(std::span<std::byte> bytes) {
  broadcast(*stages_, "from the last stage", bytes, stages_->size() - 1);
}

}  // namespace tandem
