#include "dashboard/flat_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

using Numbers = std::vector<std::pair<std::string, double>>;

bool parse(std::string_view line, Numbers* numbers) {
  numbers->clear();
  return parse_flat_json(line, [&](std::string_view key, double value) { numbers->emplace_back(key, value); });
}

TEST(FlatJson, GivesNumbersInOrder) {
  Numbers numbers;
  ASSERT_TRUE(parse(R"({"step":3,"actor/pg_loss":-0.25,"x":1e-6})", &numbers));
  EXPECT_EQ(numbers, (Numbers{{"step", 3}, {"actor/pg_loss", -0.25}, {"x", 1e-6}}));
  ASSERT_TRUE(parse(R"( { "a" : 1 , "b" : 2 } )", &numbers));
  EXPECT_EQ(numbers, (Numbers{{"a", 1}, {"b", 2}}));
  ASSERT_TRUE(parse("{}", &numbers));
  EXPECT_TRUE(numbers.empty());
}

TEST(FlatJson, ReadsNumbersThatAreNotFinite) {
  Numbers numbers;
  ASSERT_TRUE(parse(R"({"a":"NaN","b":"Infinity","c":"-Infinity"})", &numbers));
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_TRUE(std::isnan(numbers[0].second));
  EXPECT_EQ(numbers[1].second, INFINITY);
  EXPECT_EQ(numbers[2].second, -INFINITY);
}

TEST(FlatJson, PassesOverOtherValues) {
  Numbers numbers;
  ASSERT_TRUE(parse(R"({"s":"a\"},","l":[1,{"x":"]"}],"t":true,"n":null,"last":7})", &numbers));
  EXPECT_EQ(numbers, (Numbers{{"last", 7}}));
}

TEST(FlatJson, RefusesWhatIsCut) {
  const std::string line = R"({"step":12,"a/b":0.5,"s":"x","l":[1,2]})";
  Numbers numbers;
  ASSERT_TRUE(parse(line, &numbers));
  for (size_t length = 0; length < line.size(); ++length)
    EXPECT_FALSE(parse(line.substr(0, length), &numbers)) << length;
  for (const char* broken : {"[1]", "null", R"({"a":})", R"({"a" 1})", R"({a:1})", R"({"a":1}})", R"({"a":1,})"})
    EXPECT_FALSE(parse(broken, &numbers)) << broken;
}

}  // namespace
}  // namespace tandem
