// Ctrl-C and SIGTERM: the first asks the run to end after the step it is in, the second ends the process at once.
#pragma once

namespace tandem {

// `told`: what the first one prints; it must stay valid.
void catch_interrupts(const char* told = "\nending after this step, with a checkpoint; once more ends at once\n");
bool interrupted();

}  // namespace tandem
