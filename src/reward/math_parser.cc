// parse_formula: recursive descent over the tokens.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "reward/math_formula_node.h"
#include "reward/text.h"

namespace tandem {
namespace {

using Token = MathToken;
using TokenKind = MathToken::Kind;
using Node = Formula::Node;
using Kind = Node::Kind;
using Parsed = std::optional<size_t>;  // index of a node

constexpr int kMaxDepth = 40;
constexpr std::array<std::string_view, 20> kFunctions = {
    "sin",  "cos",  "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh",
    "cosh", "tanh", "ln",  "log", "lg",  "exp", "asinh",  "acosh",  "atanh",  "arccot"};

bool is_function(const Token& token) {
  return token.kind == TokenKind::kCommand &&
         std::find(kFunctions.begin(), kFunctions.end(), token.text) != kFunctions.end();
}

bool is_whole(const Token& token) {
  return token.kind == TokenKind::kNumber && token.text.find('.') == std::string::npos;
}

// sum = term {("+"|"-"|"\pm") term}; term = factor {["*"|"/"] factor}; factor = "-" factor | power;
// power = atom {"!"} ["^" exponent] {"!"}
class Parser {
 public:
  Parser(std::span<const Token> tokens, PlusMinus sign) : tokens_(tokens.begin(), tokens.end()), sign_(sign) {}

  std::optional<Formula> run() {
    const Parsed root = sum();
    if (!root || at_ != tokens_.size()) return std::nullopt;
    return Formula(std::make_shared<const std::vector<Node>>(std::move(nodes_)), *root);
  }

 private:
  class Depth {
   public:
    explicit Depth(int& depth) : depth_(depth) { ++depth_; }
    ~Depth() { --depth_; }
    bool too_deep() const { return depth_ > kMaxDepth; }

   private:
    int& depth_;
  };

  const Token* peek() const { return at_ < tokens_.size() ? &tokens_[at_] : nullptr; }
  bool at_symbol(std::string_view symbol) const { return peek() && peek()->is(symbol); }
  bool take(std::string_view symbol) {
    const bool found = at_symbol(symbol);
    if (found) ++at_;
    return found;
  }

  size_t make(Kind kind, std::vector<size_t> children, std::string text = {}) {
    nodes_.push_back({kind, std::move(text), std::move(children), 10});
    return nodes_.size() - 1;
  }

  // +1, -1, or 0 where no sign stands.
  int take_sign() {
    if (take("+")) return 1;
    if (take("-")) return -1;
    if (peek() && (peek()->is_command("pm") || peek()->is_command("mp"))) {
      const bool plus = peek()->is_command("pm") == (sign_ == PlusMinus::kPlus);
      ++at_;
      return plus ? 1 : -1;
    }
    return 0;
  }

  Parsed sum() {
    const Depth depth(depth_);
    if (depth.too_deep()) return std::nullopt;
    std::vector<size_t> terms;
    for (int sign = take_sign(); terms.empty() || sign != 0; sign = take_sign()) {
      const Parsed part = term();
      if (!part) return std::nullopt;
      terms.push_back(sign < 0 ? make(Kind::kNegative, {*part}) : *part);
    }
    return terms.size() == 1 ? terms.front() : make(Kind::kSum, std::move(terms));
  }

  Parsed term() {
    std::vector<size_t> factors;
    bool divides = false;
    for (;;) {
      const Parsed part = factor();
      if (!part) return std::nullopt;
      factors.push_back(divides ? make(Kind::kInverse, {*part}) : *part);
      divides = take("/");
      if (!divides && !take("*") && !begins_atom()) break;
    }
    return factors.size() == 1 ? factors.front() : make(Kind::kProduct, std::move(factors));
  }

  Parsed factor() {
    const Depth depth(depth_);
    if (depth.too_deep()) return std::nullopt;
    if (take("+")) return factor();
    if (!take("-")) return power();
    const Parsed part = factor();
    return part ? Parsed(make(Kind::kNegative, {*part})) : std::nullopt;
  }

  // What may follow a factor without a sign between them.
  bool begins_atom() const {
    const Token* token = peek();
    if (!token) return false;
    switch (token->kind) {
      case TokenKind::kLetter:
        return true;
      case TokenKind::kNumber:  // "2 3" and "x2" are nothing known
        return false;
      case TokenKind::kCommand:
        return token->text == "frac" || token->text == "sqrt" || token->text == "binom" || is_function(*token);
      case TokenKind::kSymbol:
        return token->is("(") || token->is("[") || token->is("{") || (token->is("|") && bars_ == 0);
      default:
        return false;
    }
  }

  Parsed power() {
    Parsed base = atom();
    if (!base) return std::nullopt;
    if (take("!")) base = make(Kind::kFactorial, {*base});
    if (!take("^")) return base;
    const Parsed exponent = script();
    if (!exponent) return std::nullopt;
    return make(Kind::kPower, {*base, *exponent});
  }

  // An exponent: a group, or one token with its sign. Plain text's "2^10" means the whole number.
  Parsed script() {
    const Depth depth(depth_);
    if (depth.too_deep()) return std::nullopt;
    if (take("-")) {
      const Parsed part = script();
      return part ? Parsed(make(Kind::kNegative, {*part})) : std::nullopt;
    }
    if (at_symbol("{")) return group("{", "}");
    if (at_symbol("(")) return group("(", ")");
    if (peek() && peek()->kind == TokenKind::kNumber) return make(Kind::kNumber, {}, tokens_[at_++].text);
    return atom();
  }

  Parsed group(std::string_view open, std::string_view close) {
    if (!take(open)) return std::nullopt;
    const int bars = std::exchange(bars_, 0);
    const Parsed inside = sum();
    bars_ = bars;
    return inside && take(close) ? inside : std::nullopt;
  }

  // A macro's argument: a group, or one token, of a number its first digit only.
  Parsed argument() {
    if (at_symbol("{")) return group("{", "}");
    if (at_ >= tokens_.size() || tokens_[at_].kind != TokenKind::kNumber) return atom();
    Token& token = tokens_[at_];
    const size_t digit = make(Kind::kNumber, {}, token.text.substr(0, 1));
    token.text.erase(0, 1);
    if (token.text.empty()) ++at_;
    return is_digit(nodes_[digit].text[0]) ? Parsed(digit) : std::nullopt;
  }

  Parsed atom() {
    const Depth depth(depth_);
    const Token* token = peek();
    if (!token || depth.too_deep()) return std::nullopt;
    switch (token->kind) {
      case TokenKind::kNumber:
        return number();
      case TokenKind::kLetter:
        return letter();
      case TokenKind::kCommand:
        return macro();
      case TokenKind::kSymbol:
        if (token->is("(")) return group("(", ")");
        if (token->is("[")) return group("[", "]");
        if (token->is("{")) return group("{", "}");
        if (token->is("|")) return absolute();
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // Also "2516_8", and the mixed numbers "1\frac{4}{5}" and "1 4/5".
  Parsed number() {
    const Token token = tokens_[at_++];
    const size_t whole = make(Kind::kNumber, {}, token.text);
    if (!is_whole(token) || !peek()) return whole;
    if (take("_")) return in_base(whole);
    if (const Parsed part = mixed_part()) return make(Kind::kSum, {whole, *part});
    return peek() && peek()->kind == TokenKind::kNumber ? std::nullopt : Parsed(whole);
  }

  Parsed mixed_part() {
    const size_t begin = at_;
    if (peek()->is_command("frac")) {
      const auto all_whole = [&](size_t first, size_t last) {
        return last < tokens_.size() && tokens_[first].is("{") && is_whole(tokens_[first + 1]) && tokens_[last].is("}");
      };
      const bool short_form =
          at_ + 1 < tokens_.size() && is_whole(tokens_[at_ + 1]) && tokens_[at_ + 1].text.size() == 2;
      if (short_form || (all_whole(at_ + 1, at_ + 3) && all_whole(at_ + 4, at_ + 6))) return macro();
    } else if (is_whole(*peek()) && peek()->spaced && at_ + 2 < tokens_.size() && tokens_[at_ + 1].is("/") &&
               is_whole(tokens_[at_ + 2])) {
      at_ += 3;
      const size_t above = make(Kind::kNumber, {}, tokens_[begin].text);
      const size_t below = make(Kind::kNumber, {}, tokens_[begin + 2].text);
      return make(Kind::kProduct, {above, make(Kind::kInverse, {below})});
    }
    return std::nullopt;
  }

  Parsed in_base(size_t number) {
    const bool braces = take("{");
    const Token* token = peek();
    if (!token || !is_whole(*token)) return std::nullopt;
    int base = 0;
    std::from_chars(token->text.data(), token->text.data() + token->text.size(), base);
    ++at_;
    if (base < 2 || base > 10 || (braces && !take("}"))) return std::nullopt;
    Node& node = nodes_[number];
    node.kind = Kind::kInBase;
    node.base = base;
    const auto fits = [&](char digit) { return digit - '0' < base; };
    return std::all_of(node.text.begin(), node.text.end(), fits) ? Parsed(number) : std::nullopt;
  }

  // Its subscript belongs to its name.
  Parsed letter() {
    std::string name = tokens_[at_++].text;
    if (take("_")) {
      const auto plain = [&] {
        return peek() && (peek()->kind == TokenKind::kLetter || peek()->kind == TokenKind::kNumber);
      };
      name += '_';
      if (plain()) {
        name += tokens_[at_++].text;
      } else if (take("{")) {
        while (plain()) name += tokens_[at_++].text;
        if (!take("}")) return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    return make(Kind::kLetter, {}, std::move(name));
  }

  Parsed macro() {
    const Token token = tokens_[at_++];
    if (token.text == "frac" || token.text == "binom") {
      const Parsed above = argument(), below = above ? argument() : std::nullopt;
      if (!below) return std::nullopt;
      if (token.text == "binom") return make(Kind::kBinomial, {*above, *below});
      const size_t inverse = make(Kind::kInverse, {*below});
      return make(Kind::kProduct, {*above, inverse});
    }
    if (token.text == "sqrt") return root();
    return is_function(token) ? function(token.text) : std::nullopt;
  }

  Parsed root() {
    Parsed degree;
    if (at_symbol("[")) {
      degree = group("[", "]");
      if (!degree) return std::nullopt;
    }
    const Parsed radicand = at_symbol("(") ? group("(", ")") : argument();
    if (!radicand) return std::nullopt;
    return degree ? make(Kind::kRoot, {*radicand, *degree}) : make(Kind::kRoot, {*radicand});
  }

  // \sin^2 x, \log_2 8, \sin 2x: without brackets, the argument is what is multiplied, up to the next function.
  Parsed function(const std::string& name) {
    Parsed base, exponent;
    if (take("_")) {
      base = argument();
      if (!base || name != "log") return std::nullopt;
    }
    if (take("^")) {
      exponent = script();
      if (!exponent) return std::nullopt;
    }
    const Parsed inside = function_argument();
    if (!inside) return std::nullopt;
    std::vector<size_t> children{*inside};
    if (base) children.push_back(*base);
    if (exponent && is_minus_one(*exponent)) {
      if (name != "sin" && name != "cos" && name != "tan") return std::nullopt;
      return make(Kind::kFunction, std::move(children), "arc" + name);
    }
    const size_t value = make(Kind::kFunction, std::move(children), name);
    return exponent ? make(Kind::kPower, {value, *exponent}) : value;
  }

  Parsed function_argument() {
    if (at_symbol("(")) return group("(", ")");
    if (at_symbol("{")) return group("{", "}");
    std::vector<size_t> factors;
    do {
      const Parsed part = power();
      if (!part) return std::nullopt;
      factors.push_back(*part);
    } while (begins_atom() && !is_function(*peek()) && !at_symbol("("));
    return factors.size() == 1 ? factors.front() : make(Kind::kProduct, std::move(factors));
  }

  bool is_minus_one(size_t index) const {
    const Node& node = nodes_[index];
    return node.kind == Kind::kNegative && nodes_[node.children[0]].kind == Kind::kNumber &&
           nodes_[node.children[0]].text == "1";
  }

  Parsed absolute() {
    ++at_;
    ++bars_;
    const Parsed inside = sum();
    --bars_;
    if (!inside || !take("|")) return std::nullopt;
    return make(Kind::kAbsolute, {*inside});
  }

  std::vector<Token> tokens_;
  const PlusMinus sign_;
  size_t at_ = 0;
  int depth_ = 0;
  int bars_ = 0;  // open |
  std::vector<Node> nodes_;
};

}  // namespace

std::optional<Formula> parse_formula(std::span<const MathToken> tokens, PlusMinus sign) {
  return Parser(tokens, sign).run();
}

Formula difference(const Formula& a, const Formula& b) {
  std::vector<Node> nodes = a.nodes();
  const size_t offset = nodes.size();
  for (Node node : b.nodes()) {
    for (size_t& child : node.children) child += offset;
    nodes.push_back(std::move(node));
  }
  nodes.push_back({Kind::kNegative, {}, {b.root() + offset}, 10});
  nodes.push_back({Kind::kSum, {}, {a.root(), nodes.size() - 1}, 10});
  const size_t root = nodes.size() - 1;
  return Formula(std::make_shared<const std::vector<Node>>(std::move(nodes)), root);
}

}  // namespace tandem
