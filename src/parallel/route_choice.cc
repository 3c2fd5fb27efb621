#include "parallel/route_choice.h"

#include <fmt/format.h>

#include "parallel/link_model.h"

namespace tandem {
namespace {

using Planner = RoutePlan (*)(Route, const Topology&, std::span<const RoutePiece>, OneRank);

RouteChoice choose(Planner plan, const RankNetwork& network, std::span<const RoutePiece> pieces,
                   std::optional<Route> asked) {
  RouteChoice choice{.route = asked.value_or(Route::kDirect), .asked = asked.has_value()};
  for (const RoutePiece& piece : pieces)
    for (const size_t segment : piece.segments) choice.bytes += static_cast<int64_t>(segment);
  if (network.topology.num_nodes() < 2) return choice;
  for (const Route route : kRoutes) {
    double& seconds = choice.seconds[static_cast<size_t>(route)];
    seconds = seconds_of(plan(route, network.topology, pieces, {}), network);
    if (!asked && seconds < choice.seconds[static_cast<size_t>(choice.route)]) choice.route = route;
  }
  return choice;
}

std::string link_text(const Link& link) {
  return fmt::format("{:.0f} us + {:.1f} us a message, {:.2f} GB/s", link.latency_s * 1e6, link.message_s * 1e6,
                     link.bytes_per_s / 1e9);
}

}  // namespace

std::string_view name_of(Component component) {
  constexpr std::string_view kNames[] = {"attention", "mlp", "embedding"};
  return kNames[static_cast<size_t>(component)];
}

Component component_of(std::string_view parameter) {
  if (!parameter.starts_with("layers.")) return Component::kEmbedding;
  const std::string_view name = parameter.substr(parameter.find('.', 7) + 1);
  const bool mlp = name.starts_with("post_norm") || name.starts_with("gate_up") || name.starts_with("down");
  return mlp ? Component::kMlp : Component::kAttention;
}

RouteChoice choose_gather(const RankNetwork& network, std::span<const RoutePiece> pieces, std::optional<Route> asked) {
  return choose(plan_gather, network, pieces, asked);
}

RouteChoice choose_sum(const RankNetwork& network, std::span<const RoutePiece> pieces, std::optional<Route> asked) {
  return choose(plan_sum, network, pieces, asked);
}

std::string route_table(const std::string& model, const RankNetwork& network, std::span<const ChoiceRow> rows) {
  const Topology& topology = network.topology;
  std::string text = fmt::format("communication of {}: {} ranks on {} node{}", model, topology.num_ranks(),
                                 topology.num_nodes(), topology.num_nodes() == 1 ? "" : "s");
  if (topology.num_nodes() > 1)
    text += fmt::format("; {} links: within a node {}; across {}", network.links.measured ? "measured" : "assumed",
                        link_text(network.links.local), link_text(network.links.across));
  text += fmt::format("\n  {:<10} {:<7} {:>9}  {:<12}", "component", "what", "MB", "route");
  if (topology.num_nodes() > 1) text += "  predicted ms: direct, ring, hierarchical, tree";
  for (const ChoiceRow& row : rows) {
    const RouteChoice& c = row.choice;
    text += fmt::format("\n  {:<10} {:<7} {:>9.2f}  {:<12}", name_of(row.component), row.what,
                        static_cast<double>(c.bytes) / 1e6, fmt::format("{}{}", name_of(c.route), c.asked ? "*" : ""));
    if (topology.num_nodes() > 1)
      text += fmt::format("  {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f}", c.seconds[0] * 1e3, c.seconds[1] * 1e3,
                          c.seconds[2] * 1e3, c.seconds[3] * 1e3);
  }
  for (const ChoiceRow& row : rows)
    if (row.choice.asked) return text + "\n  * asked for by trainer.communication";
  return text;
}

}  // namespace tandem
