// Any template renders any messages or says why not with a DataError; nothing else may happen.
// The input is a template and the messages' JSON, parted by the first NUL.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view source = input.substr(0, cut);
  const std::string_view messages = cut == std::string_view::npos ? "[]" : input.substr(cut + 1);
  try {
    tandem::ChatTemplate::from_source(source, {{"bos_token", "<s>"}}).render(messages);
  } catch (const tandem::DataError&) {
  }
  return 0;
}
