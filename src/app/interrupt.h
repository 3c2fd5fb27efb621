// Ctrl-C and SIGTERM: the first asks the run to end after the step it is in, the second ends the process at once.
#pragma once

namespace tandem {

void catch_interrupts();
bool interrupted();

}  // namespace tandem
