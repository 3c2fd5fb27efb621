// Text to token ids and back: Hugging Face `tokenizers` behind a C ABI (shims/tokenizers). The ids are those of
// Python's `tokenizers` with add_special_tokens=False: no BOS or EOS is ever added on its own.
//
// Bytes that are not UTF-8 are read as Python's bytes.decode("utf-8", "replace") reads them: one U+FFFD for each
// maximal invalid part. NUL is a character like any other.
//
// A *control token* is an added token marked special, or one whose spelling has the shape of a turn marker
// ("<|...|>", "<｜...｜>", "<start_of_turn>", "<end_of_turn>"): some vocabularies forget the mark. Added tokens that
// are neither, such as Qwen's "<think>" and "<tool_call>", are ordinary text with an id of their own.
//
// Everything const is safe from many threads. Errors: IoError for files, DataError for ids and text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct TtTokenizer;  // the shim's

namespace tandem {

// An added token: found in the text as a whole, before anything else is split.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;  // as tokenizer.json says; decode(skip_special) drops these
  bool control = false;  // see above
};

// A range of bytes of a text.
struct TextSpan {
  size_t begin = 0, end = 0;
};

// Decodes a response while it grows. What push() and finish() return, joined, is decode() of all the ids; a character
// is held back until its last byte has come. Not thread-safe; may outlive its Tokenizer.
class DecodeStream {
 public:
  std::string push(int32_t id);
  std::string finish();  // what is held back; the stream then starts anew

 private:
  friend class Tokenizer;
  DecodeStream(std::shared_ptr<const TtTokenizer> handle, bool skip_special);
  std::string window(size_t begin, size_t end) const;

  std::shared_ptr<const TtTokenizer> handle_;
  bool skip_special_;
  std::vector<int32_t> ids_;
  size_t context_ = 0;  // where the window that decides the next piece begins
  size_t printed_ = 0;  // the ids before this one have been returned
};

class Tokenizer {
 public:
  // Reads tokenizer.json; its truncation and padding are ignored.
  static Tokenizer from_folder(const std::filesystem::path& folder);

  // Spellings of control tokens in `text` become control ids.
  std::vector<int32_t> encode(std::string_view text) const;
  // Never gives a control id: their spellings are encoded as the text they are.
  std::vector<int32_t> encode_plain(std::string_view text) const;
  // Control tokens only where `controls` says: each span, ascending and apart, spells one; all else is plain.
  std::vector<int32_t> encode_with_controls(std::string_view text, std::span<const TextSpan> controls) const;

  // Ids beyond the vocabulary are skipped, as in Python; negative ones are a DataError.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  DecodeStream stream(bool skip_special = true) const { return {handle_, skip_special}; }

  // One more than the greatest id, added tokens included: the ids that may be drawn. A model's logits may be wider.
  size_t vocab_size() const { return vocab_size_; }
  std::optional<int32_t> token_to_id(std::string_view token) const;
  bool is_special(int32_t id) const;  // marked special in tokenizer.json
  bool is_control(int32_t id) const;
  std::span<const AddedToken> added_tokens() const { return added_; }  // ascending ids

 private:
  explicit Tokenizer(std::shared_ptr<const TtTokenizer> handle);
  const AddedToken* find_added(int32_t id) const;

  std::shared_ptr<const TtTokenizer> handle_;
  std::vector<AddedToken> added_;
  size_t vocab_size_ = 0;
};

// The ids that end, begin and pad a text.
struct SpecialIds {
  std::vector<int32_t> eos;  // any of them ends a response; empty when the folder names none
  std::optional<int32_t> bos, pad;
};

// Each from the first of generation_config.json, config.json, tokenizer_config.json that has it.
SpecialIds read_special_ids(const std::filesystem::path& folder);

}  // namespace tandem
