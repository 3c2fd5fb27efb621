#include "base/text.h"

#include <gtest/gtest.h>

#include "base/fnv.h"

namespace tandem {
namespace {

TEST(Text, StripsWhiteSpaceAroundIt) {
  EXPECT_EQ(stripped(" \t\r\n\f\va b\n"), "a b");
  EXPECT_EQ(stripped("a"), "a");
  EXPECT_EQ(stripped(" \n"), "");
  EXPECT_EQ(stripped(""), "");
}

// Values of Landon Curt Noll's test vectors; the word spells "foobar\0\0".
TEST(Fnv, KnownValues) {
  EXPECT_EQ(fnv1a(kFnvStart, ""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a(kFnvStart, "a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a(kFnvStart, "foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(fnv1a(kFnvStart, uint64_t{0x00007261626f6f66}), fnv1a(kFnvStart, std::string_view("foobar\0\0", 8)));
}

}  // namespace
}  // namespace tandem
