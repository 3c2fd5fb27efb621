#pragma once

namespace tandem {

// Gives what was freed and lies between what is in use back to the system: big buffers of one phase do not stay
// resident through the next. Takes milliseconds; does nothing without glibc.
void release_freed_memory();

}  // namespace tandem
