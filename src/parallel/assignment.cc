#include "parallel/assignment.h"

#include <cstddef>
#include <limits>

namespace tandem {

std::vector<int> best_assignment(const std::vector<std::vector<int64_t>>& value) {
  const size_t n = value.size();
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 4;
  // Potentials of rows and columns, counted from 1; column 0 is where a search starts.
  std::vector<int64_t> row_potential(n + 1), col_potential(n + 1);
  std::vector<size_t> row_of(n + 1), came_from(n + 1);
  for (size_t row = 1; row <= n; ++row) {
    row_of[0] = row;
    size_t col = 0;
    std::vector<int64_t> distance(n + 1, kFar);
    std::vector<bool> done(n + 1, false);
    do {
      done[col] = true;
      const size_t from = row_of[col];
      size_t nearest = 0;
      int64_t step = kFar;
      for (size_t next = 1; next <= n; ++next) {
        if (done[next]) continue;
        const int64_t cost = -value[from - 1][next - 1] - row_potential[from] - col_potential[next];
        if (cost < distance[next]) distance[next] = cost, came_from[next] = col;
        if (distance[next] < step) step = distance[next], nearest = next;
      }
      for (size_t c = 0; c <= n; ++c) {
        if (done[c]) {
          row_potential[row_of[c]] += step, col_potential[c] -= step;
        } else {
          distance[c] -= step;
        }
      }
      col = nearest;
    } while (row_of[col] != 0);
    for (; col != 0; col = came_from[col]) row_of[col] = row_of[came_from[col]];
  }
  std::vector<int> out(n);
  for (size_t col = 1; col <= n; ++col) out[row_of[col] - 1] = static_cast<int>(col - 1);
  return out;
}

}  // namespace tandem
