// Responses that go through a model once more, as the trainers' passes take them.
#pragma once

#include <vector>

#include "data/trajectory_store.h"
#include "train/packing.h"

namespace tandem {

struct ResponsePass {
  std::vector<TrajectoryPtr> trajectories;  // keep alive what `items` look at
  std::vector<PackItem> items;
  std::vector<double> temperatures;

  void add(TrajectoryPtr t) {
    items.push_back({t->prompt->token_ids, t->response_ids});
    temperatures.push_back(t->temperature);
    trajectories.push_back(std::move(t));
  }
};

inline ResponsePass pass_over(const RolloutBatch& batch, const TrajectoryStore& store) {
  ResponsePass pass;
  for (const Sample& sample : batch) pass.add(store.get(sample.handle));
  return pass;
}

}  // namespace tandem
