#include "train/pipeline.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/tensor_view.h"
#include "model/placements.h"
#include "parallel/collectives.h"
#include "parallel/reshard.h"

namespace tandem {
namespace {

std::span<std::byte> bytes_of_tensor(const at::Tensor& tensor) {
  return bytes_of(kernels::f32(tensor), static_cast<size_t>(tensor.numel()));
}

// The members of a small group among all ranks; null for the others, who must take part in making it.
std::unique_ptr<Communicator> group_of(Communicator& world, const std::vector<int>& members) {
  const bool member = std::ranges::find(members, world.rank()) != members.end();
  auto group = world.split(member ? members : std::vector<int>{world.rank()});
  return member ? std::move(group) : nullptr;
}

}  // namespace

Pipeline::Pipeline(Decoder& decoder, Communicator& world)
    : decoder_(decoder), world_(world), rank_(world.rank()), list_(placements(decoder.config())) {
  const Layout layout{.pp = world.size()};
  check_layout(decoder.config(), layout);
  for (size_t p = 0; p < list_.parameters.size(); ++p)
    if (holds(list_, list_.parameters[p], layout, rank_)) held_.push_back(p);
  for (int upper = 0; upper + 1 < world.size(); ++upper) {
    Edge edge{group_of(world, {upper, upper + 1}), group_of(world, {upper, upper + 1})};
    if (rank_ == upper + 1) before_ = std::move(edge);
    if (rank_ == upper) after_ = std::move(edge);
  }
  if (world.size() > 1) ends_ = group_of(world, {0, world.size() - 1});
  const Range blocks = stage_blocks(list_.num_blocks, rank_, world.size());
  ModelConfig config = decoder.config();
  config.num_hidden_layers = blocks.size();
  stage_ = std::make_unique<Decoder>(config, part_of(decoder.weights()), decoder.max_positions());
}

// The same tensors, less what other stages hold.
DecoderWeights Pipeline::part_of(const DecoderWeights& whole) const {
  const Range blocks = stage_blocks(list_.num_blocks, rank_, world_.size());
  DecoderWeights part;
  part.layers.assign(whole.layers.begin() + blocks.begin, whole.layers.begin() + blocks.end);
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
  reshard(world_, plan_reshard(list_, {.pp = world_.size()}, {.dp_replicate = world_.size()}), memory);
}

DecoderWeights Pipeline::gathered(const DecoderWeights& part) {
  const DecoderWeights whole = empty_weights(decoder_.config());
  reshard_into(part, whole);
  return whole;
}

void Pipeline::enter_training() {
  const Range blocks = stage_blocks(list_.num_blocks, rank_, world_.size());
  DecoderWeights& whole = decoder_.weights();
  for (size_t i = 0; i < whole.layers.size(); ++i)
    if (static_cast<int64_t>(i) < blocks.begin || static_cast<int64_t>(i) >= blocks.end) whole.layers[i] = {};
}

void Pipeline::enter_rollout() {
  DecoderWeights& whole = decoder_.weights();
  const bool complete =
      std::ranges::all_of(whole.layers, [](const LayerWeights& l) { return l.qkv.weight_NE.defined(); });
  if (complete) return;
  const LayerWeights like = stage_->weights().layers[0];
  for (LayerWeights& layer : whole.layers) {
    if (layer.qkv.weight_NE.defined()) continue;
    DecoderWeights alone;
    alone.layers = {like};
    layer = mapped(alone, [](const at::Tensor& t) { return at::empty(t.sizes(), t.options()); }).layers[0];
  }
  reshard_into(stage_->weights(), whole);
}

at::Tensor Pipeline::receive(Communicator& from, int peer, const at::Tensor& like, int64_t rows) {
  at::Tensor values = kernels::empty({rows, like.size(0)}, like);
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

void Pipeline::forward(SampleList samples, size_t begin, size_t end, const BatchingOptions& options,
                       const HeadPass& head) {
  std::vector<PackItem> items;
  for (size_t i = begin; i < end; ++i) items.push_back(pack_item(*samples[i]));
  InFlight& pass = in_flight_.emplace_back();
  pass.begin = begin, pass.end = end;
  pass.batch = pack(items);
  at::Tensor x;
  if (before_.activations)
    x = receive(*before_.activations, 0, stage_->weights().layers[0].input_norm_E, pass.batch.tokens.num_tokens());
  // All that a stage may have in flight must fit.
  const int64_t bytes = pass.batch.tokens.num_tokens() * activation_bytes_per_token(*stage_) * (world_.size() - rank_);
  const bool keep_all = !options.may_recompute || bytes <= options.activation_bytes;
  pass.activations = stage_->forward_for_training(pass.batch.tokens, keep_all, x);
  if (after_.activations) {
    send(down_, *after_.activations, 1, pass.activations.x_TE);
  } else {
    pass.dx = head(begin, samples.subspan(begin, end - begin), pass.batch, pass.activations.x_TE);
  }
}

void Pipeline::backward(SampleList samples, DecoderWeights& gradients, const OnTokens& on_tokens) {
  InFlight pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  at::Tensor dx = pass.dx;
  if (after_.gradients)
    dx = receive(*after_.gradients, 1, stage_->weights().layers[0].input_norm_E, pass.batch.tokens.num_tokens());
  if (before_.gradients) {
    send(up_, *before_.gradients, 0,
         stage_->blocks_backward(pass.batch.tokens, std::move(pass.activations), dx, gradients));
  } else {
    stage_->backward(pass.batch.tokens, std::move(pass.activations), dx, gradients);
  }
  int64_t tokens = 0;
  for (size_t i = pass.begin; i < pass.end; ++i) tokens += static_cast<int64_t>(num_tokens(*samples[i]));
  if (on_tokens) on_tokens(tokens);
}

void Pipeline::forward_backward(SampleList samples, const BatchingOptions& options, const HeadPass& head,
                                DecoderWeights& gradients, const OnTokens& on_tokens) {
  // Stages may have different numbers of blocks, but must cut the samples alike: as the greatest stage would.
  uint64_t activation_bytes = static_cast<uint64_t>(activation_bytes_per_token(*stage_));
  const auto all = all_gather_values(world_, "size of activations", activation_bytes);
  activation_bytes = *std::ranges::max_element(all);
  const auto ends = micro_batch_ends(static_cast<int64_t>(activation_bytes), samples, options);
  const size_t ahead = std::min(ends.size(), static_cast<size_t>(world_.size() - 1 - rank_));
  const auto forward_of = [&](size_t m) { forward(samples, m == 0 ? 0 : ends[m - 1], ends[m], options, head); };
  for (size_t m = 0; m < ahead; ++m) forward_of(m);
  for (size_t m = ahead; m < ends.size(); ++m) {
    forward_of(m);
    backward(samples, gradients, on_tokens);
  }
  while (!in_flight_.empty()) backward(samples, gradients, on_tokens);
  for (std::future<void>& sent : sending_) sent.get();
  sending_.clear();
}

void Pipeline::finish_gradients(DecoderWeights& gradients) {
  if (!ends_ || !gradients.embed_VE.defined() || !gradients.lm_head_VE.is_same(gradients.embed_VE)) return;
  all_reduce(*ends_, "gradient of the tied embedding",
             std::span(kernels::f32(gradients.embed_VE), static_cast<size_t>(gradients.embed_VE.numel())));
}

// In the order of one rank's sum.
double Pipeline::total(std::span<const double> by_parameter) {
  std::string mine(reinterpret_cast<const char*>(by_parameter.data()), by_parameter.size_bytes());
  const auto texts = all_gather_text(world_, "norm of the gradient", mine);
  std::vector<double> all(list_.parameters.size());
  for (int rank = 0; rank < world_.size(); ++rank) {
    size_t next = 0;
    for (size_t p = 0; p < all.size(); ++p)
      if (holds(list_, list_.parameters[p], {.pp = world_.size()}, rank))
        std::memcpy(&all[p], texts[static_cast<size_t>(rank)].data() + sizeof(double) * next++, sizeof(double));
  }
  return std::accumulate(all.begin(), all.end(), 0.0);
}

void Pipeline::from_last(std::span<std::byte> bytes) {
  broadcast(world_, "from the last stage", bytes, world_.size() - 1);
}

}  // namespace tandem
