#include "config/flat_yaml.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tandem {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

TEST(FlatYaml, GivesDottedKeys) {
  EXPECT_EQ(flat_yaml("a:\n  b: 1\n  c: {d: x y}\ne: [1, 'two']\nf: null\ng: {}\n", "t"),
            (Entries{{"a.b", "1"}, {"a.c.d", "x y"}, {"e", "[1, two]"}, {"f", "null"}, {"g", "{}"}}));
  EXPECT_TRUE(flat_yaml("", "t").empty());
  EXPECT_TRUE(flat_yaml("just words", "t").empty());
  EXPECT_THROW(flat_yaml("a: [", "t"), ConfigError);
}

}  // namespace
}  // namespace tandem
