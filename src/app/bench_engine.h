// An engine on random weights, timed: rollout, a micro-batch, whole steps; lines of JSON.
#pragma once

#include <memory>

#include "app/bench_arguments.h"
#include "engine/team.h"
#include "parallel/communicator.h"

namespace tandem {

// Carries out `arguments.what` with an engine of this process alone, or as the leader of `team`.
void bench_engine(const BenchArguments& arguments, std::shared_ptr<Team> team = nullptr);

// Another rank of such a bench, until its leader is done.
void follow_bench(const BenchArguments& arguments, std::shared_ptr<Team> team);

}  // namespace tandem
