#include <cctype>

#include "config/value.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 64;

// Recursive descent over Hydra's value grammar (hydra.cc/docs/advanced/override_grammar/basic), without sweeps and
// functions.
class ValueParser {
 public:
  ValueParser(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  Value parse() {
    Value value = element("", 0);
    skip_space();
    if (at_ == text_.size()) return value;
    if (text_[at_] == ',') fail("put lists in brackets, [a,b], and text with a comma in quotes");
    fail("unexpected '" + std::string(text_.substr(at_)) + "' after the value");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(std::string(origin_) + ": " + what); }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // `closers` end an unquoted scalar, as a comma always does.
  Value element(std::string_view closers, int depth) {
    if (depth > kMaxDepth) fail("brackets are nested too deeply");
    skip_space();
    if (at_ == text_.size()) return quoted_value("", std::string(origin_));
    const char c = text_[at_];
    if (c == '[') return list(depth);
    if (c == '{') return dict(depth);
    if (c == '\'' || c == '"') return quoted_value(quoted(), std::string(origin_));
    return plain_value(plain(closers), std::string(origin_));
  }

  Value list(int depth) {
    Value out{.kind = Value::Kind::kList, .origin = std::string(origin_)};
    ++at_;
    if (take(']')) return out;
    do {
      out.items.push_back(element("]", depth + 1));
    } while (take(','));
    if (!take(']')) fail("a list lacks its closing ]");
    return out;
  }

  Value dict(int depth) {
    Value out{.kind = Value::Kind::kDict, .origin = std::string(origin_)};
    ++at_;
    if (take('}')) return out;
    do {
      skip_space();
      const bool in_quotes = at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"');
      std::string key = in_quotes ? quoted() : plain(":}");
      if (!take(':')) fail("a dict needs the form {key: value}");
      out.entries.emplace_back(std::move(key), element("}", depth + 1));
    } while (take(','));
    if (!take('}')) fail("a dict lacks its closing }");
    return out;
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string out;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      if (c == quote) {
        ++at_;
        return out;
      }
      if (c == '\\' && (next == quote || next == '\\')) ++at_;
      out += text_[at_];
    }
    fail(std::string("a closing ") + quote + " is missing");
  }

  std::string plain(std::string_view closers) {
    std::string out;
    int interpolations = 0;  // inside ${...} every character belongs to it
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      if (c == '$' && next == '{') ++interpolations;
      if (interpolations > 0) {
        interpolations -= c == '}';
        out += c;
      } else if (c == ',' || closers.find(c) != std::string_view::npos) {
        break;
      } else if (c == '\\' && std::string_view("\\()[]{}:=,").find(next) != std::string_view::npos && next != '\0') {
        out += text_[++at_];
      } else {
        out += c;
      }
    }
    return std::string(trim(out));
  }

  const std::string_view text_, origin_;
  size_t at_ = 0;
};

}  // namespace

Value parse_override_value(std::string_view text, std::string_view origin) { return ValueParser(text, origin).parse(); }

Override parse_override(std::string_view text) {
  const std::string origin = "override '" + std::string(text) + "'";
  Override out;
  std::string_view rest = trim(text);
  if (rest.starts_with('~')) {
    out.remove = true;
    rest.remove_prefix(1);
  } else {
    for (int i = 0; i < 2 && rest.starts_with('+'); ++i) rest.remove_prefix(1);
  }
  const size_t equals = rest.find('=');
  out.key = trim(rest.substr(0, equals));
  for (const char c : out.key)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("._-/@").find(c) == std::string_view::npos)
      throw ConfigError(origin + ": not of the form key=value, +key=value, ++key=value or ~key");
  split_key(out.key, origin);
  if (equals != std::string_view::npos) {
    out.value = parse_override_value(rest.substr(equals + 1), origin);
  } else if (!out.remove) {
    throw ConfigError(origin + ": lacks '=value'");
  }
  out.value.origin = origin;
  return out;
}

}  // namespace tandem
