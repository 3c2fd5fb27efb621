// Reads the members of a request's JSON object, each by its type and range. What nobody asked for is an error, so that
// nothing a client wants is passed over in silence. Errors are ApiError of status 400 naming the member. A member that
// is null counts as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/types.h"

namespace tandem {

// ApiError 400 where the text is not a JSON object or is nested deeper than 64 levels.
nlohmann::ordered_json parse_request(const std::string& body);

class JsonFields {
 public:
  explicit JsonFields(const nlohmann::ordered_json& object) : object_(object) {}

  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  std::vector<std::string> texts(const std::string& name, size_t most);  // a text or a list of them
  const nlohmann::ordered_json* raw(const std::string& name);            // null where absent

  void ignore(std::initializer_list<std::string_view> names);  // has no effect on what is answered
  // Allowed only where it says what holds anyway.
  void require(const std::string& name, const nlohmann::ordered_json& only, std::string_view why);
  void finish() const;  // refuses members that nobody asked for

 private:
  const nlohmann::ordered_json& object_;
  std::set<std::string, std::less<>> known_;
};

// A list of whole numbers in [0, vocab). `name` is for the error.
std::vector<TokenId> read_token_ids(const nlohmann::ordered_json& list, const std::string& name, int64_t vocab);

}  // namespace tandem
