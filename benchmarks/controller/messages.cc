#include "controller/messages.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "base/error.h"

namespace tandem::stub {
namespace {

static_assert(std::is_trivially_copyable_v<Sample>);
constexpr size_t kHead = 5;  // length and kind

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void read_all(int fd, char* into, size_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd, into, size, 0);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, "the other side of a stub connection is gone");
    into += n, size -= static_cast<size_t>(n);
  }
}

}  // namespace

std::string framed(const Message& message) {
  const auto size = static_cast<uint32_t>(message.body.size());
  std::string out(kHead, '\0');
  std::memcpy(out.data(), &size, 4);
  out[4] = static_cast<char>(message.kind);
  return out + message.body;
}

void write_message(int fd, const Message& message, Traffic& traffic) {
  const std::string bytes = framed(message);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, "the other side of a stub connection is gone");
    at += static_cast<size_t>(n);
  }
  traffic.sent += bytes.size(), ++traffic.messages;
}

Message read_message(int fd, Traffic& traffic) {
  char head[kHead];
  read_all(fd, head, kHead);
  uint32_t size = 0;
  std::memcpy(&size, head, 4);
  Message out{static_cast<Kind>(head[4]), std::string(size, '\0')};
  read_all(fd, out.body.data(), size);
  traffic.received += kHead + size, ++traffic.messages;
  return out;
}

std::optional<Message> take_message(std::string& received) {
  if (received.size() < kHead) return std::nullopt;
  uint32_t size = 0;
  std::memcpy(&size, received.data(), 4);
  if (received.size() < kHead + size) return std::nullopt;
  Message out{static_cast<Kind>(received[4]), received.substr(kHead, size)};
  received.erase(0, kHead + size);
  return out;
}

std::string encode_ids(const std::vector<PromptPtr>& prompts) {
  std::vector<uint64_t> ids;
  for (const PromptPtr& prompt : prompts) ids.push_back(prompt->id);
  return bytes_of(ids);
}

std::vector<PromptPtr> decode_ids(const std::string& bytes) {
  std::vector<PromptPtr> prompts;
  for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    auto prompt = std::make_shared<Prompt>();
    std::memcpy(&prompt->id, bytes.data() + at, 8);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::string encode(const RolloutBatch& batch) { return bytes_of(batch); }

RolloutBatch decode(const std::string& bytes) {
  RolloutBatch batch(bytes.size() / sizeof(Sample));
  std::memcpy(batch.data(), bytes.data(), batch.size() * sizeof(Sample));
  return batch;
}

}  // namespace tandem::stub
