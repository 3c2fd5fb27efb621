#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "text/shim.h"
#include "text/utf8.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string decode_ids(const TtTokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  std::vector<uint32_t> unsigned_ids;
  unsigned_ids.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0) throw DataError("cannot decode the token id " + std::to_string(id) + ": ids are not negative");
    unsigned_ids.push_back(static_cast<uint32_t>(id));
  }
  ShimText text;
  if (tt_tokenizer_decode(&tokenizer, unsigned_ids.data(), unsigned_ids.size(), skip_special, text.out()) != 0)
    throw DataError(std::string("cannot decode token ids: ") + tt_last_error());
  return text.str();
}

}  // namespace

Tokenizer Tokenizer::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const MappedFile file(path);
  const auto bytes = file.bytes();
  TtTokenizer* handle = tt_tokenizer_new(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (handle == nullptr) throw IoError(path.string() + " is not a usable tokenizer: " + tt_last_error());
  return Tokenizer({handle, tt_tokenizer_free});
}

Tokenizer::Tokenizer(std::shared_ptr<const TtTokenizer> handle)
    : handle_(std::move(handle)), vocab_size_(tt_tokenizer_vocab_size(handle_.get())) {
  const size_t count = tt_tokenizer_added_count(handle_.get());
  added_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    TtAddedToken token;
    check(tt_tokenizer_added(handle_.get(), i, &token) == 0, "added tokens are numbered from 0");
    added_.push_back({static_cast<int32_t>(token.id),
                      std::string(reinterpret_cast<const char*>(token.text), token.size), token.special != 0,
                      token.control != 0});
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  const std::string valid = to_valid_utf8(text);
  ShimIds ids;
  if (tt_tokenizer_encode(handle_.get(), shim_bytes(valid), valid.size(), ids.out()) != 0)
    throw DataError(std::string("cannot tokenise the text: ") + tt_last_error());
  return ids.ids();
}

std::vector<int32_t> Tokenizer::encode_plain(std::string_view text) const {
  return encode_with_controls(to_valid_utf8(text), {});
}

std::vector<int32_t> Tokenizer::encode_with_controls(std::string_view text, std::span<const TextSpan> controls) const {
  std::vector<TtSpan> spans;
  spans.reserve(controls.size());
  for (const TextSpan& span : controls) spans.push_back({span.begin, span.end});
  ShimIds ids;
  if (tt_tokenizer_encode_with_controls(handle_.get(), shim_bytes(text), text.size(), spans.data(), spans.size(),
                                        ids.out()) != 0)
    throw DataError(std::string("cannot tokenise the text: ") + tt_last_error());
  return ids.ids();
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return decode_ids(*handle_, ids, skip_special);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int64_t id = tt_tokenizer_token_to_id(handle_.get(), shim_bytes(token), token.size());
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

const AddedToken* Tokenizer::find_added(int32_t id) const {
  const auto found = std::ranges::lower_bound(added_, id, {}, &AddedToken::id);
  return found != added_.end() && found->id == id ? &*found : nullptr;
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = find_added(id);
  return token != nullptr && token->special;
}

bool Tokenizer::is_control(int32_t id) const {
  const AddedToken* token = find_added(id);
  return token != nullptr && token->control;
}

DecodeStream::DecodeStream(std::shared_ptr<const TtTokenizer> handle, bool skip_special)
    : handle_(std::move(handle)), skip_special_(skip_special) {}

std::string DecodeStream::window(size_t begin, size_t end) const {
  return decode_ids(*handle_, std::span(ids_).subspan(begin, end - begin), skip_special_);
}

// Decoders look back a little (a blank before a word is dropped at the start of a text), so a new text is what a window
// that begins at the last returned piece gains by the new ids.
std::string DecodeStream::push(int32_t id) {
  ids_.push_back(id);
  const std::string before = window(context_, printed_), now = window(context_, ids_.size());
  if (now.size() <= before.size() || now.ends_with(kReplacement)) return {};
  context_ = printed_;
  printed_ = ids_.size();
  return now.substr(before.size());
}

std::string DecodeStream::finish() {
  const std::string before = window(context_, printed_), now = window(context_, ids_.size());
  ids_.clear();
  context_ = printed_ = 0;
  return now.substr(std::min(before.size(), now.size()));
}

}  // namespace tandem
