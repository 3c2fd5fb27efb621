#pragma once

namespace tandem {

// What the child process of a BridgeSink runs: lines of JSON come in on descriptor 0, answers go back on it.
extern const char* const kBridgeScript;

}  // namespace tandem
