// A short measurement of the links between ranks: pairs of neighbours exchange small and large messages.
#pragma once

#include "parallel/topology.h"

namespace tandem {

// The slowest of the links of each kind: within each node its first two ranks, and the first ranks of nodes that follow
// each other. All ranks call it together and get the same. A kind of link that does not exist keeps Links' own figures.
// Some 10 MB a pair; by `world`, in the hosts' memory.
Links measure_links(Communicator& world, const Topology& topology);

}  // namespace tandem
