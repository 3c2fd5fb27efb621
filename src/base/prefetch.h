// Of mapped files: what is read soon is fetched from the disk meanwhile.
#pragma once

#include <cstddef>
#include <span>

namespace tandem {

// Returns at once; a hint that may go unheard.
void will_need(std::span<const std::byte> mapped);

}  // namespace tandem
