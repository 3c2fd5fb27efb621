// trainer.communication.*: how ranks on several nodes reach each other (docs/communication.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct ModelCommunicationConfig {
  std::string attention = "auto", mlp = "auto", embedding = "auto";

  template <class V>
  void fields(V&& v) {
    v("attention", attention,
      "route of the attention's weights and gradients; auto: the quickest by topology and links",
      {"auto", "direct", "ring", "hierarchical", "tree"});
    v("mlp", mlp, "the same for the MLP's", {"auto", "direct", "ring", "hierarchical", "tree"});
    v("embedding", embedding, "the same for what stands outside the blocks: embedding, final norm, head",
      {"auto", "direct", "ring", "hierarchical", "tree"});
  }
};

struct CommunicationConfig {
  ModelCommunicationConfig actor, critic;
  int64_t ranks_per_node = 0;
  double cross_node_share = 0.4;
  double cross_node_share_back = 0.3;
  std::vector<std::string> switched_models = {"critic"};

  template <class V>
  void fields(V&& v) {
    v("actor", actor, "routes of the actor, by component");
    v("critic", critic, "routes of the critic, by component");
    v("ranks_per_node", ranks_per_node, "so many consecutive ranks are a node; 0: as the ranks' hosts say");
    v("cross_node_share", cross_node_share,
      "share of a step's time above which traffic between nodes makes gradients take the chunked tree");
    v("cross_node_share_back", cross_node_share_back, "share below which, for three steps in a row, they go back");
    v("switched_models", switched_models, "models whose gradients do so", {"actor", "critic"});
  }
};

}  // namespace tandem
