// Values as bytes: what the records of a file and the messages between ranks of one program are made of. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "data/types.h"

namespace tandem {

// Payloads: fields one after the other as they lie in memory, lists behind their length.
class PayloadWriter {
 public:
  template <class T>
  PayloadWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  template <class List>
  PayloadWriter& put_list(const List& list) {
    put<uint64_t>(list.size());
    bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(*list.data()));
    return *this;
  }
  // One list of fields serves both directions: trivial values as they are, vectors as lists.
  template <class... T>
  void operator()(const T&... values) {
    (field(values), ...);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void field(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      put(value);
    } else {
      put_list(value);
    }
  }

  std::string bytes_;
};

// IoError where a payload is shorter than what is read from it.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    T value;
    copy(&value, sizeof(T));
    return value;
  }
  template <class List>
  List get_list() {
    const auto count = get<uint64_t>();
    List list;
    using Element = std::remove_cvref_t<decltype(*list.data())>;
    require(count, sizeof(Element));
    list.resize(count);
    copy(list.data(), count * sizeof(Element));
    return list;
  }
  template <class... T>
  void operator()(T&... values) {
    (field(values), ...);
  }

 private:
  template <class T>
  void field(T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      value = get<T>();
    } else {
      value = get_list<T>();
    }
  }
  void require(uint64_t count, size_t element) const;
  void copy(void* to, size_t size);

  std::span<const std::byte> rest_;
};

// The fields of a prompt and of a trajectory, but for its prompt; `stream` writes or reads them.
template <class Stream, class P>
void prompt_fields(Stream& stream, P& prompt) {
  stream(prompt.id, prompt.token_ids);
}
template <class Stream, class T>
void trajectory_fields(Stream& stream, T& t) {
  stream(t.sample_index, t.policy_version, t.temperature, t.stop_reason, t.mean_entropy, t.response_ids,
         t.rollout_logprobs, t.response_mask);
}

}  // namespace tandem
