#include "data/payload.h"

#include <cstring>

#include "base/error.h"

namespace tandem {

void PayloadReader::require(uint64_t count, size_t element) const {
  if (count > rest_.size() / element) throw IoError("a record or message is shorter than it says");
}

void PayloadReader::copy(void* to, size_t size) {
  require(size, 1);
  if (size > 0) std::memcpy(to, rest_.data(), size);
  rest_ = rest_.subspan(size);
}

}  // namespace tandem
