#include "base/prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace tandem {

void will_need(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(mapped.data()), first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + mapped.size() - first, MADV_WILLNEED);
}

}  // namespace tandem
