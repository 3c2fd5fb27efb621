// The C ABI of shims/tokenizers with owners for what it hands out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem_tokenizers.h"

namespace tandem {

inline const uint8_t* shim_bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

class ShimText {
 public:
  ShimText() = default;
  ShimText(const ShimText&) = delete;
  ShimText& operator=(const ShimText&) = delete;
  ~ShimText() { tt_free_text(text_); }
  TtText* out() { return &text_; }
  std::string str() const { return {reinterpret_cast<const char*>(text_.data), text_.size}; }

 private:
  TtText text_{};
};

class ShimIds {
 public:
  ShimIds() = default;
  ShimIds(const ShimIds&) = delete;
  ShimIds& operator=(const ShimIds&) = delete;
  ~ShimIds() { tt_free_ids(ids_); }
  TtIds* out() { return &ids_; }
  std::vector<int32_t> ids() const { return {ids_.data, ids_.data + ids_.size}; }

 private:
  TtIds ids_{};
};

}  // namespace tandem
