// Fully sharded data parallelism (ZeRO stage 3; Rajbhandari et al. 2020, arXiv:1910.02054): every rank keeps a part of
// every parameter, of its gradient and of its optimizer state. A block's weights are gathered when a pass comes to it,
// the next block's beside the work on this one; its gradients go to their owners when the backward pass leaves it. With
// dp_replicate > 1 the parts are kept once in each group of dp_shard ranks (hybrid shard).
// A gradient is the sum over all ranks in rank order, whatever the layout: bitwise that of one rank which computes the
// same micro-batches rank by rank, each from zero.
// The decoder may itself be one rank's part of a tensor-parallel one or a pipeline's stage; what is spread here is then
// that part.
// On a GPU the weights are bf16 and their fp32 masters are kept in parts too; gradients are fp32. What travels does so
// beside the device's work, behind the part of it that it needs (kernels::run_beside).
// How weights and gradients travel between several nodes is chosen by component (parallel/route_choice.h).
// Every method is called by all ranks together. Not thread-safe.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "model/decoder.h"
#include "parallel/collectives.h"
#include "parallel/lane.h"
#include "parallel/placement.h"
#include "parallel/route_choice.h"
#include "parallel/route_runner.h"
#include "train/traffic_watch.h"

namespace tandem {

class FullyShardedModel : public BlockStore {
 public:
  // `layout`: dp_replicate and dp_shard only. The decoder, with all its weights, and `world` must outlive it; masters
  // that it has are let go. `world` is of devices where the decoder is on one. `routing`'s topology is that of `world`;
  // empty: one node. `places`: its parameters' in the list of the whole model, of which a stage has some; empty: all.
  FullyShardedModel(Decoder& decoder, Communicator& world, const Layout& layout, Routing routing = {},
                    std::vector<size_t> places = {});
  ~FullyShardedModel() override;

  Communicator& world() { return world_; }
  const Layout& layout() const { return layout_; }

  // Training: the decoder's blocks exist one or two at a time, what stands outside the blocks as a whole. Rollout: the
  // decoder holds all its weights. It starts in rollout.
  void enter_training();
  void enter_rollout();
  // New weights for all ranks, whole in each one's decoder: in rollout only.
  void take_weights_from_decoder();
  // New weights for all ranks, given in shards(): first leave_rollout(), then parts_changed(). Nothing whole is made
  // before the next phase is entered.
  void leave_rollout();
  void parts_changed();

  // This rank's parts, flat, under the weights' names and in their places: what the optimizer works on.
  DecoderWeights& shards() { return shards_; }
  DecoderWeights& gradient_shards() { return gradient_shards_; }

  // What backward passes add into: whole outside the blocks, and room for two blocks, which all of them share.
  DecoderWeights& gradients() { return gradients_; }
  // After a pass forward and backward: the rest of its gradients goes to the owners, beside the start of the next pass.
  void finish_micro_batch();
  // After all of them: gradient_shards() are whole.
  void finish_gradients();
  // The part in such a pass of a rank that has nothing to compute.
  void idle_micro_batch();
  // Of some of the blocks; finish_micro_batch() is not among it.
  void idle_forward(Range blocks);
  void idle_backward(Range blocks);
  // Σ of squares of the gradient of each parameter, added up as on one rank.
  std::vector<double> gradient_squares();
  // After the optimizer has changed shards().
  void weights_changed();

  // Between parts and the whole. `gathered` makes it in the host's memory, unit by unit, on ranks that say `keep`;
  // without tensors elsewhere.
  DecoderWeights parts_of(const DecoderWeights& whole) const;
  DecoderWeights gathered(const DecoderWeights& parts, bool keep = true);

  // BlockStore.
  const LayerWeights& weights(size_t block) override;
  void gradients_ready(size_t block) override;

  // What each component's weights and gradients take, for people; empty where there is one node and nothing asked for.
  std::string route_table() const;
  // After a step: its gradients may take the chunked tree from now on, or no longer (Routing::gradient_switch). A step
  // lasts from one call to the next.
  void step_done();
  bool gradients_take_tree() const { return watch_.on(); }

  // Bytes moved by this rank, for tests and reports.
  Traffic traffic() const;
  const RouteTraffic& route_traffic() const { return route_traffic_; }

 private:
  using Tensors = std::vector<at::Tensor>;
  struct Slot {  // room for a gathered block
    LayerWeights weights;
    Tensors tensors;
    std::optional<size_t> block;
    std::future<void> arriving;
  };

  Range range(size_t parameter, int shard) const;
  Tensors of_unit(const Tensors& all, size_t unit) const;
  enum class Kind { kGather, kSum };
  // The same for every rank: what each one's part of these parameters is, and who keeps it.
  std::vector<RoutePiece> pieces(Kind kind, std::span<const size_t> which, size_t element_bytes) const;
  void choose_routes();
  Route route(Kind kind, size_t parameter) const;
  // Those of `which`, by place in it, that take this route.
  std::vector<size_t> taking(Kind kind, Route route, const std::vector<size_t>& which) const;
  const RoutePlan& plan(Kind kind, Route route, const std::vector<size_t>& which, size_t element_bytes);
  void gather(const std::vector<size_t>& which, const Tensors& parts, const Tensors& whole);
  void reduce(size_t unit, const Tensors& gradients);
  void reduce_by(Route route, const std::vector<size_t>& which, const Tensors& gradients);
  Communicator& sums() { return replicated_sums_ ? *replicated_sums_ : *group_; }
  const at::Tensor& like() const { return shard_list_[0]; }
  std::future<void> beside(std::function<void()> work);
  void fetch(size_t block);
  Slot* slot_of(size_t block);
  void forget_blocks();  // what was gathered is of older weights
  void make_gradients();

  Decoder& decoder_;
  Communicator& world_;
  Layout layout_;
  int shard_;
  std::unique_ptr<Communicator> group_;            // of those that make up one copy
  std::unique_ptr<Communicator> replicated_sums_;  // of all ranks, where there are several copies
  Routing routing_;
  std::vector<size_t> places_;  // by parameter
  Topology group_topology_;
  std::vector<Component> components_;          // by parameter
  std::array<RouteChoice, 3> gathers_, sums_;  // by Component
  TrafficWatch watch_;
  std::vector<std::vector<int64_t>> shapes_;  // by parameter
  std::vector<int64_t> sizes_;                // elements
  std::vector<std::vector<size_t>> units_;    // parameters by block; the last unit: those outside the blocks
  DecoderWeights shards_, gradient_shards_, gradients_;
  Tensors shard_list_, gradient_shard_list_, gradient_list_;
  bool training_ = false, outside_is_old_ = false;
  Slot slots_[2];
  std::optional<size_t> last_block_;
  std::vector<std::future<void>> reducing_;
  std::map<std::tuple<Kind, Route, std::vector<size_t>, size_t>, RoutePlan>
      plans_;  // this rank's, made when first used
  RouteTraffic route_traffic_;
  Lane lane_;  // one, so that all ranks exchange in one order; last: its tasks use all of the above
};

}  // namespace tandem
