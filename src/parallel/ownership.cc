#include "parallel/ownership.h"

#include <map>
#include <tuple>

namespace tandem {

std::vector<std::vector<Held>> owned(const ParameterList& list, const Layout& layout) {
  using Place = std::tuple<size_t, size_t, int64_t, int64_t, int64_t, int64_t>;
  const auto place = [](const Held& held) {
    const Box& box = held.box;
    return Place(held.parameter, held.tensor, box.rows.begin, box.rows.end, box.cols.begin, box.cols.end);
  };
  const auto world = static_cast<size_t>(layout.world());
  std::vector<std::vector<Held>> all(world), mine(world);
  std::map<Place, std::vector<size_t>> holders;
  for (size_t rank = 0; rank < world; ++rank) {
    all[rank] = holdings(list, layout, static_cast<int>(rank));
    for (const Held& held : all[rank])
      if (!held.box.empty()) holders[place(held)].push_back(rank);
  }
  for (size_t rank = 0; rank < world; ++rank)
    for (const Held& held : all[rank]) {
      if (held.box.empty()) continue;
      const std::vector<size_t>& copies = holders.at(place(held));
      if (copies[held.parameter % copies.size()] == rank) mine[rank].push_back(held);
    }
  return mine;
}

}  // namespace tandem
