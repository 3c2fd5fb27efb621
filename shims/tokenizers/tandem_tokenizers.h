/* C ABI over Hugging Face `tokenizers` and `minijinja`. Text goes in as (pointer, byte count), not NUL-terminated, and
 * must be UTF-8. Functions that return int give 0, or -1 with tt_last_error() set; those that return a pointer give
 * NULL likewise. No Rust panic leaves the library: it becomes such an error. Handles are read-only once made, so that
 * one may be used from many threads. */
#ifndef TANDEM_TOKENIZERS_H_
#define TANDEM_TOKENIZERS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TtTokenizer TtTokenizer;
typedef struct TtTemplate TtTemplate;

/* Owned by the library; give back with the matching free function. */
typedef struct {
  uint8_t* data;
  size_t size;
} TtText;
typedef struct {
  uint32_t* data;
  size_t size;
} TtIds;

/* `text` lives as long as the tokenizer. */
typedef struct {
  uint32_t id;
  const uint8_t* text;
  size_t size;
  uint8_t special; /* as tokenizer.json marks it */
  uint8_t control; /* special, or spelt like a turn marker */
} TtAddedToken;

typedef struct {
  size_t begin, end; /* bytes */
} TtSpan;

const char* tt_last_error(void); /* of this thread; valid until its next failing call */
void tt_free_text(TtText text);
void tt_free_ids(TtIds ids);

/* From the content of a tokenizer.json; its truncation and padding are dropped. */
TtTokenizer* tt_tokenizer_new(const uint8_t* json, size_t size);
void tt_tokenizer_free(TtTokenizer* tokenizer);
size_t tt_tokenizer_vocab_size(const TtTokenizer* tokenizer); /* greatest id + 1 */
size_t tt_tokenizer_added_count(const TtTokenizer* tokenizer);
int tt_tokenizer_added(const TtTokenizer* tokenizer, size_t index, TtAddedToken* out); /* in ascending order of ids */
int64_t tt_tokenizer_token_to_id(const TtTokenizer* tokenizer, const uint8_t* token, size_t size); /* -1: none */
int tt_tokenizer_encode(const TtTokenizer* tokenizer, const uint8_t* text, size_t size, TtIds* out);
/* Control tokens only at `spans` (ascending, apart, each exactly one spelling); elsewhere their spellings are text. */
int tt_tokenizer_encode_with_controls(const TtTokenizer* tokenizer, const uint8_t* text, size_t size,
                                      const TtSpan* spans, size_t span_count, TtIds* out);
int tt_tokenizer_decode(const TtTokenizer* tokenizer, const uint32_t* ids, size_t count, int skip_special, TtText* out);

TtTemplate* tt_template_new(const uint8_t* source, size_t size);
void tt_template_free(TtTemplate* chat_template);
/* `variables`: a JSON object. */
int tt_template_render(const TtTemplate* chat_template, const uint8_t* variables, size_t size, TtText* out);

#ifdef __cplusplus
}
#endif

#endif  // TANDEM_TOKENIZERS_H_
