// Threads as the ranks of one engine.
#pragma once

#include <omp.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/team.h"
#include "parallel/communicator_local.h"

namespace tandem {

// fn(leader, its store) on rank 0 while the others follow. `make` gives a rank its engine.
inline void with_ranks(
    const Layout& layout,
    const std::function<std::unique_ptr<Engine>(int rank, const std::shared_ptr<TrajectoryStore>&)>& make,
    const std::function<void(Engine&, TrajectoryStore&)>& fn) {
  const int size = layout.world();
  auto orders = make_local_group(size), work = make_local_group(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      omp_set_num_threads(1);
      const auto store = std::make_shared<TrajectoryStore>();
      const std::unique_ptr<Engine> engine = make(rank, store);
      engine->join_team(std::make_shared<Team>(std::move(orders[rank]), std::move(work[rank]), layout));
      if (rank == 0) {
        fn(*engine, *store);
      } else {
        engine->follow();
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace tandem
