// Leaders and workers without engines, in one process with many sockets: a leader takes its group's call from the
// controller, hands each of its workers a part by the controller's own Dispatch, merges what comes back, and tells the
// controller now and then that all of them live. A worker answers after the time that the cost model gives its call.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::stub {

struct StubTimes {
  double generate = 0, score = 0, update = 0;  // seconds of a call
  double heartbeat = 5;                        // seconds between two of a leader's
};

struct StubGroups {
  std::vector<int> leaders;  // one connected socket a leader, the leader's end
  int workers_of_each = 4;
  int samples_per_prompt = 8;
};

// Serves until the controller says stop on every connection, or closes it.
void serve(const StubGroups& groups, const StubTimes& times);

}  // namespace tandem::stub
