// How the parts of a fully sharded model travel.
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kernels/side_work.h"
#include "train/fsdp.h"

namespace tandem {
namespace {

at::Tensor flat_part(const at::Tensor& tensor, const Range& range) {
  return tensor.view({-1}).narrow(0, range.begin, range.size());
}

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  check(tensor.is_contiguous(), "a contiguous tensor is wanted");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

std::span<float> floats_of(const at::Tensor& tensor) {
  check(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "sums are fp32");
  return {static_cast<float*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
}

// Where `like` lies.
Arithmetic arithmetic_beside(const at::Tensor& like) {
  const auto wrapped = [options = like.options().dtype(at::kFloat)](const float* data, size_t count) {
    return at::from_blob(const_cast<float*>(data), {static_cast<int64_t>(count)}, options);
  };
  return {[like](size_t count) {
            const at::Tensor memory = kernels::empty_fp32({static_cast<int64_t>(count)}, like);
            return std::shared_ptr<float>(static_cast<float*>(memory.data_ptr()), [memory](float*) {});
          },
          [wrapped](std::span<float> to, std::span<const float> from) {
            kernels::accumulate(wrapped(to.data(), to.size()), wrapped(from.data(), from.size()));
          }};
}

std::vector<size_t> at_places(const std::vector<size_t>& all, const std::vector<size_t>& places) {
  std::vector<size_t> some;
  for (const size_t place : places) some.push_back(all[place]);
  return some;
}

}  // namespace

std::vector<RoutePiece> FullyShardedModel::pieces(Kind kind, std::span<const size_t> which,
                                                  size_t element_bytes) const {
  std::vector<RoutePiece> all;
  for (int shard = 0; shard < layout_.dp_shard; ++shard) {
    RoutePiece& piece = all.emplace_back();
    const int copies = kind == Kind::kSum ? layout_.dp_replicate : 1;
    for (int copy = 0; copy < copies; ++copy) piece.owners.push_back(copy * layout_.dp_shard + shard);
    for (const size_t p : which) piece.segments.push_back(static_cast<size_t>(range(p, shard).size()) * element_bytes);
  }
  return all;
}

// By the first block's parameters: the others' are as large.
void FullyShardedModel::choose_routes() {
  const RankNetwork group{group_topology_, routing_.network.links};
  for (const Component component : kComponents) {
    const auto c = static_cast<size_t>(component);
    std::vector<size_t> which;
    for (const size_t unit : {size_t{0}, units_.size() - 1})
      for (const size_t p : units_[unit])
        if (components_[p] == component) which.push_back(p);
    const auto asked = routing_.asked[c];
    gathers_[c] = choose_gather(group, pieces(Kind::kGather, which, shard_list_[0].element_size()), asked);
    sums_[c] = choose_sum(routing_.network, pieces(Kind::kSum, which, sizeof(float)), asked);
  }
}

Route FullyShardedModel::route(Kind kind, size_t parameter) const {
  if (kind == Kind::kSum && watch_.on()) return Route::kTree;
  return (kind == Kind::kGather ? gathers_ : sums_)[static_cast<size_t>(components_[parameter])].route;
}

std::vector<size_t> FullyShardedModel::taking(Kind kind, Route wanted, const std::vector<size_t>& which) const {
  std::vector<size_t> places;
  for (size_t i = 0; i < which.size(); ++i)
    if (route(kind, which[i]) == wanted) places.push_back(i);
  return places;
}

const RoutePlan& FullyShardedModel::plan(Kind kind, Route route, const std::vector<size_t>& which,
                                         size_t element_bytes) {
  const auto [found, absent] = plans_.try_emplace({kind, route, which, element_bytes});
  if (!absent) return found->second;
  const std::vector<RoutePiece> all = pieces(kind, which, element_bytes);
  found->second = kind == Kind::kGather ? plan_gather(route, group_topology_, all, group_->rank())
                                        : plan_sum(route, routing_.network.topology, all, world_.rank());
  return found->second;
}

// Parts go straight to their places in the whole tensors.
void FullyShardedModel::gather(const std::vector<size_t>& which, const Tensors& parts, const Tensors& whole) {
  for (const Route route : kRoutes) {
    const std::vector<size_t> places = taking(Kind::kGather, route, which);
    if (places.empty()) continue;
    std::vector<Segments<std::byte>> memory(static_cast<size_t>(layout_.dp_shard));
    for (const size_t i : places) {
      for (int peer = 0; peer < layout_.dp_shard; ++peer)
        memory[static_cast<size_t>(peer)].push_back(memory_of(flat_part(whole[i], range(which[i], peer))));
      const std::span<std::byte> own = memory_of(parts[i]);
      std::byte* place = memory[static_cast<size_t>(shard_)].back().data();
      if (place != own.data() && !own.empty())
        group_->copy_rows(place, own.size(), own.data(), own.size(), own.size(), 1);
    }
    const RoutePlan& mine = plan(Kind::kGather, route, at_places(which, places), parts[places[0]].element_size());
    run_gather(*group_, "all_gather of weights", mine, group_topology_, memory, route_traffic_);
  }
}

void FullyShardedModel::reduce(size_t unit, const Tensors& gradients) {
  for (const Route route : kRoutes) {
    const std::vector<size_t> places = taking(Kind::kSum, route, units_[unit]);
    if (places.empty()) continue;
    Tensors some;
    for (const size_t i : places) some.push_back(gradients[i]);
    reduce_by(route, at_places(units_[unit], places), some);
  }
}

// The sum in rank order, rank = replica · dp_shard + shard, to all that keep a part.
void FullyShardedModel::reduce_by(Route route, const std::vector<size_t>& which, const Tensors& gradients) {
  std::vector<Segments<const float>> contributions(static_cast<size_t>(layout_.dp_shard));
  Tensors kept;
  Segments<float> sum;
  for (size_t i = 0; i < which.size(); ++i) {
    for (int peer = 0; peer < layout_.dp_shard; ++peer)
      contributions[static_cast<size_t>(peer)].push_back(floats_of(flat_part(gradients[i], range(which[i], peer))));
    kept.push_back(kernels::empty_fp32({range(which[i], shard_).size()}, like()));
    sum.push_back(floats_of(kept.back()));
  }
  run_sum(sums(), "reduce_scatter of gradients", plan(Kind::kSum, route, which, sizeof(float)),
          routing_.network.topology, contributions, sum, arithmetic_beside(like()), route_traffic_);
  for (size_t i = 0; i < which.size(); ++i) {
    kernels::accumulate(gradient_shard_list_[which[i]], kept[i]);
    kernels::set_to_zero(gradients[i]);
  }
}

std::string FullyShardedModel::route_table() const {
  const auto asked = [](const std::optional<Route>& route) { return route.has_value(); };
  if (routing_.network.topology.num_nodes() < 2 && std::ranges::none_of(routing_.asked, asked)) return {};
  std::vector<ChoiceRow> rows;
  for (const Component component : kComponents) {
    rows.push_back({component, "gather", gathers_[static_cast<size_t>(component)]});
    rows.push_back({component, "sum", sums_[static_cast<size_t>(component)]});
  }
  return tandem::route_table(routing_.model, routing_.network, rows);
}

// The sums of a step are through: what they take changes between two of them.
void FullyShardedModel::step_done() {
  if (!routing_.gradient_switch || routing_.network.topology.num_nodes() < 2) return;
  finish_gradients();
  watch_.step_done(world_, route_traffic_.across_seconds);
}

}  // namespace tandem
