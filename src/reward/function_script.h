// The Python program of a reward process: `python3 -u -c SCRIPT file function kwargs`. It reads one JSON request a line
// and answers one JSON line each; it ends itself when its parent is gone.
#pragma once

namespace tandem {

extern const char* const kFunctionScript;

}  // namespace tandem
