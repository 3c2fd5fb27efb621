#include "config/interpolate.h"

#include <cstdlib>

namespace tandem {
namespace {

constexpr int kMaxDepth = 16;           // of references to references: a circle ends here
constexpr size_t kMaxVisits = 10'000;   // of values: references that fan out end here
constexpr size_t kMaxText = 1'000'000;  // bytes

class Interpolator {
 public:
  explicit Interpolator(const Lookup& lookup) : lookup_(lookup) {}

  Value fill(const Value& value, std::string_view key, int depth) const {
    if (depth > kMaxDepth || ++visits_ > kMaxVisits)
      fail_at(value, std::string(key) + ": ${...} goes round in circles or is nested too deeply");
    Value out = value;
    if (value.is_scalar()) return scalar(value, key, depth);
    for (Value& item : out.items) item = fill(item, key, depth);
    for (auto& [name, item] : out.entries) item = fill(item, key, depth);
    return out;
  }

 private:
  Value scalar(const Value& value, std::string_view key, int depth) const {
    const std::string_view text = value.text;
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t open = text.find("${", at);
      if (open == std::string_view::npos) {
        out += text.substr(at);
        break;
      }
      if (open > at && text[open - 1] == '\\') {
        out += text.substr(at, open - 1 - at);
        out += "${";
        at = open + 2;
        continue;
      }
      out += text.substr(at, open - at);
      const size_t close = closing(text, open + 2);
      if (close == std::string_view::npos) fail_at(value, std::string(key) + ": a ${ lacks its closing }");
      Value part = reference(trim(text.substr(open + 2, close - open - 2)), value, key, depth + 1);
      part.origin = value.origin;
      if (open == 0 && close + 1 == text.size()) return part;
      if (!part.is_scalar() && part.kind != Value::Kind::kNull)
        fail_at(value, std::string(key) + ": a list or section cannot stand inside a text");
      out += part.kind == Value::Kind::kNull ? "null" : part.text;
      if (out.size() > kMaxText) fail_at(value, std::string(key) + ": ${...} grows too long");
      at = close + 1;
    }
    Value filled = value;
    filled.text = out;
    return filled;
  }

  static size_t closing(std::string_view text, size_t at) {
    int depth = 1;
    for (; at < text.size(); ++at) {
      if (text.substr(at, 2) == "${") ++depth;
      if (text[at] == '}' && --depth == 0) return at;
    }
    return std::string_view::npos;
  }

  // `inside` is what stands between ${ and }.
  Value reference(std::string_view inside, const Value& value, std::string_view key, int depth) const {
    const size_t colon = inside.find(':');
    if (colon == std::string_view::npos) {
      const std::string target = absolute(filled_text(inside, value, key, depth), key);
      if (const auto found = lookup_(target)) return fill(*found, target, depth);
      fail_at(value, std::string(key) + ": ${" + std::string(inside) + "}: there is no key " + target);
    }
    const std::string_view resolver = inside.substr(0, colon), rest = inside.substr(colon + 1);
    const size_t comma = rest.find(',');
    const std::string name = filled_text(trim(rest.substr(0, comma)), value, key, depth);
    const auto fallback = [&] {
      return fill(parse_override_value(trim(rest.substr(comma + 1)), value.origin), key, depth);
    };
    if (resolver == "oc.env") {
      if (const char* text = std::getenv(name.c_str())) return plain_value(text, value.origin);
      if (comma != std::string_view::npos) return fallback();
      fail_at(value, std::string(key) + ": the environment variable " + name + " is not set: export it, or give a " +
                         "default, ${oc.env:" + name + ",default}");
    }
    if (resolver == "oc.select") {
      const std::string target = absolute(name, key);
      if (const auto found = lookup_(target)) return fill(*found, target, depth);
      return comma == std::string_view::npos ? Value{} : fallback();
    }
    fail_at(value, std::string(key) + ": ${" + std::string(resolver) + ":...} is not known; there are ${key}, " +
                       "${oc.env:NAME,default} and ${oc.select:key,default}");
  }

  std::string filled_text(std::string_view text, const Value& value, std::string_view key, int depth) const {
    return fill(quoted_value(std::string(text), value.origin), key, depth).text;
  }

  // One leading dot means the section that `key` stands in, each further dot one section up.
  static std::string absolute(const std::string& target, std::string_view key) {
    size_t dots = 0;
    while (dots < target.size() && target[dots] == '.') ++dots;
    std::string base(key);
    for (size_t i = 0; i < dots; ++i) base.erase(base.rfind('.') == std::string::npos ? 0 : base.rfind('.'));
    if (dots == 0 || base.empty()) return target.substr(dots);
    return base + "." + target.substr(dots);
  }

  const Lookup& lookup_;
  mutable size_t visits_ = 0;
};

}  // namespace

Value interpolate(const Value& value, std::string_view key, const Lookup& lookup) {
  return Interpolator(lookup).fill(value, key, 0);
}

}  // namespace tandem
