// What the controller and the leaders of its worker groups say to each other over a socket, and leaders to their
// workers: a length, a kind, then the call's argument or result. Handles, ids and per-sample scalars only.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "data/types.h"

namespace tandem::stub {

enum class Kind : uint8_t { kGenerate, kScore, kUpdate, kResult, kHeartbeat, kStop };

struct Message {
  Kind kind = Kind::kStop;
  std::string body;
};

// Counts what this process's end of a connection moved.
struct Traffic {
  uint64_t sent = 0, received = 0, messages = 0;
};

// Reads and writes whole messages; blocking. check() where the other side is gone.
void write_message(int fd, const Message& message, Traffic& traffic);
Message read_message(int fd, Traffic& traffic);

// For readers that poll: takes a whole message off the front of what has come.
std::optional<Message> take_message(std::string& received);
std::string framed(const Message& message);

// The ids of prompts, and samples as they lie in memory: both ends are one program on one machine.
std::string encode_ids(const std::vector<PromptPtr>& prompts);
std::vector<PromptPtr> decode_ids(const std::string& bytes);
std::string encode(const RolloutBatch& batch);
RolloutBatch decode(const std::string& bytes);

}  // namespace tandem::stub
