#include <omp.h>

#include <algorithm>
#include <thread>

#include "app/command.h"

namespace tandem {

void set_num_threads(int64_t threads) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  omp_set_num_threads(static_cast<int>(threads > 0 ? threads : std::max<int64_t>(1, cores)));
}

}  // namespace tandem
