#include "kernels/id_groups.h"

#include <algorithm>
#include <numeric>

namespace tandem::kernels {

IdGroups group_ids(std::span<const int32_t> ids) {
  IdGroups groups;
  groups.order.resize(ids.size());
  std::iota(groups.order.begin(), groups.order.end(), 0);
  std::stable_sort(groups.order.begin(), groups.order.end(), [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[groups.order[i]];
    if (!groups.ids.empty() && groups.ids.back() == id) continue;
    groups.ids.push_back(id);
    groups.starts.push_back(static_cast<int32_t>(i));
  }
  groups.starts.push_back(static_cast<int32_t>(ids.size()));
  return groups;
}

}  // namespace tandem::kernels
