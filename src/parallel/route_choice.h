// Which route a component's weights and gradients take in a group: the one that link_model.h finds quickest, unless one
// is asked for. The same on every rank that is told the same network. Plain values; thread-safe.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/cross_node_switch.h"
#include "parallel/routes.h"

namespace tandem {

enum class Component {
  kAttention,
  kMlp,
  kEmbedding
};  // norms go with what they feed; embedding: all outside the blocks
inline constexpr Component kComponents[] = {Component::kAttention, Component::kMlp, Component::kEmbedding};
std::string_view name_of(Component component);
// By a parameter's name in the program ("layers.3.gate_up").
Component component_of(std::string_view parameter);

// What is asked for; nothing: the quickest.
using ComponentRoutes = std::array<std::optional<Route>, 3>;  // by Component

// What a model's exchanges are planned from. The topology is that of the ranks that share the model.
struct Routing {
  std::string model;  // for people: "actor"
  RankNetwork network;
  ComponentRoutes asked;
  std::optional<SwitchOptions> gradient_switch;  // nothing: its gradients keep their routes
};

struct RouteChoice {
  Route route = Route::kDirect;
  bool asked = false;
  int64_t bytes = 0;                   // of the whole that is gathered or summed
  std::array<double, 4> seconds = {};  // predicted, by Route; zeros where there was nothing to weigh: one node
};

RouteChoice choose_gather(const RankNetwork& network, std::span<const RoutePiece> pieces,
                          std::optional<Route> asked = {});
RouteChoice choose_sum(const RankNetwork& network, std::span<const RoutePiece> pieces, std::optional<Route> asked = {});

struct ChoiceRow {
  Component component;
  std::string what;  // "gather", "sum"
  RouteChoice choice;
};
// For people: the network, then a line a row.
std::string route_table(const std::string& model, const RankNetwork& network, std::span<const ChoiceRow> rows);

}  // namespace tandem
