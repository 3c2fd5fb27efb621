#include <gtest/gtest.h>

#include "base/error.h"
#include "goldens.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

class SpecialIdsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "special_ids" /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void write(const char* name, const char* content) { write_file_atomic(folder_ / name, content); }

  std::filesystem::path folder_;
};

TEST_F(SpecialIdsTest, EachIdComesFromTheFirstFileThatHasIt) {
  write("generation_config.json", R"({"eos_token_id": [7, 9], "pad_token_id": null})");
  write("config.json", R"({"eos_token_id": 3, "bos_token_id": 4, "pad_token_id": 0})");
  const SpecialIds ids = read_special_ids(folder_);
  EXPECT_EQ(ids.eos, (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(ids.bos, 4);
  EXPECT_EQ(ids.pad, 0);
}

TEST_F(SpecialIdsTest, TokenizerConfigNamesThemByText) {
  const SpecialIds ids = read_special_ids(text_data("toy"));
  EXPECT_EQ(ids.eos, std::vector<int32_t>{2});
  EXPECT_EQ(ids.bos, 1);
  EXPECT_EQ(ids.pad, 0);
}

// TOK-2: that pad and eos are one id is no reason to lose either.
TEST_F(SpecialIdsTest, PadMayBeEos) {
  write("config.json", R"({"eos_token_id": 2, "pad_token_id": 2})");
  const SpecialIds ids = read_special_ids(folder_);
  EXPECT_EQ(ids.eos, std::vector<int32_t>{2});
  EXPECT_EQ(ids.pad, 2);
}

TEST_F(SpecialIdsTest, AbsentIdsAreAbsent) {
  const SpecialIds ids = read_special_ids(folder_);
  EXPECT_TRUE(ids.eos.empty());
  EXPECT_FALSE(ids.bos || ids.pad);
}

TEST_F(SpecialIdsTest, WrongValuesNameTheFileAndKey) {
  EXPECT_THROW(read_special_ids("/nowhere"), IoError);
  write("config.json", R"({"eos_token_id": "two"})");
  try {
    read_special_ids(folder_);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("config.json: eos_token_id must be a token id"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
