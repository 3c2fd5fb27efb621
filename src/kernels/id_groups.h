// Token ids grouped by value, for a gradient of an embedding that sums in a fixed order. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::kernels {

struct IdGroups {
  std::vector<int32_t> ids;     // distinct, ascending
  std::vector<int32_t> starts;  // of each group in `order`, and its end
  std::vector<int32_t> order;   // tokens by id, and of one id in the order of the batch
};

IdGroups group_ids(std::span<const int32_t> ids);

}  // namespace tandem::kernels
