#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <set>
#include <sstream>

#include "config/value.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxNodes = 100'000;  // aliases may repeat a part: a small file must not become a huge tree

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Value read(const YAML::Node& node, int depth) {
    const std::string origin = place(node);
    if (depth > kMaxDepth || ++nodes_ > kMaxNodes)
      throw ConfigError(origin + ": too deep or too large for a configuration; check its anchors and aliases");
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return scalar(node, origin);
      case YAML::NodeType::Sequence:
        return list(node, origin, depth);
      case YAML::NodeType::Map:
        return dict(node, origin, depth);
      default:
        return {.origin = origin};
    }
  }

 private:
  std::string place(const YAML::Node& node) const {
    return node.Mark().line < 0 ? name_ : name_ + ":" + std::to_string(node.Mark().line + 1);
  }

  static Value scalar(const YAML::Node& node, const std::string& origin) {
    if (node.Tag() == "?" || node.Tag().empty()) return plain_value(node.Scalar(), origin);
    return quoted_value(node.Scalar(), origin);
  }

  Value list(const YAML::Node& node, const std::string& origin, int depth) {
    Value out{.kind = Value::Kind::kList, .origin = origin};
    for (const YAML::Node& item : node) out.items.push_back(read(item, depth + 1));
    return out;
  }

  Value dict(const YAML::Node& node, const std::string& origin, int depth) {
    Value out{.kind = Value::Kind::kDict, .origin = origin};
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const YAML::Node &key = entry.first, &item = entry.second;
      if (!key.IsScalar()) throw ConfigError(place(key) + ": a key must be a word");
      if (!seen.insert(key.Scalar()).second)
        throw ConfigError(place(key) + ": key '" + key.Scalar() + "' stands twice in this section: keep one");
      out.entries.emplace_back(key.Scalar(), read(item, depth + 1));
      if (out.entries.back().second.kind == Value::Kind::kNull) out.entries.back().second.origin = place(key);
    }
    return out;
  }

  const std::string name_;
  size_t nodes_ = 0;
};

class NoEvents final : public YAML::EventHandler {
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::Load stops silently after the first document, and YAML::LoadAll never ends on a stray closing bracket.
void refuse_second_document(const std::string& text, std::string_view name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NoEvents events;
  if (parser.HandleNextDocument(events) && parser.HandleNextDocument(events))
    throw ConfigError(std::string(name) + ": goes on after its end: keep one document ('---'), and no stray bracket");
}

}  // namespace

Value parse_yaml(std::string_view text, std::string_view name) {
  try {
    const std::string copy(text);
    refuse_second_document(copy, name);
    const YAML::Node root = YAML::Load(copy);
    if (root.IsNull()) return {.kind = Value::Kind::kDict, .origin = std::string(name)};
    if (!root.IsMap()) throw ConfigError(std::string(name) + ": a configuration is made of 'key: value' lines");
    return Reader(name).read(root, 0);
  } catch (const YAML::Exception& error) {
    const std::string line = error.mark.is_null() ? "" : ":" + std::to_string(error.mark.line + 1);
    throw ConfigError(std::string(name) + line + ": not valid YAML: " + error.msg);
  }
}

}  // namespace tandem
