#include "observe/jsonl.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "temp_folder.h"

namespace tandem {
namespace {

TEST(Jsonl, AppendsAcrossOpenings) {
  const TempFolder folder;
  const auto path = folder / "deep/er/x.jsonl";
  JsonlWriter(path).append(R"({"step":1})");
  JsonlWriter(path).append(R"({"step":2})");
  EXPECT_EQ(slurp(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(Jsonl, ARecordIsInTheFileAtOnce) {
  const TempFolder folder;
  JsonlWriter writer(folder / "x.jsonl");
  writer.append("{}");
  EXPECT_EQ(slurp(folder / "x.jsonl"), "{}\n");
}

TEST(Jsonl, OpeningCutsAnUnfinishedLine) {
  const TempFolder folder;
  const auto path = folder / "x.jsonl";
  spill(path, "{\"step\":1}\n{\"step\":2,\"a");
  JsonlWriter(path).append(R"({"step":2})");
  EXPECT_EQ(slurp(path), "{\"step\":1}\n{\"step\":2}\n");
  spill(path, "{\"st");
  const JsonlWriter writer(path);
  EXPECT_EQ(slurp(path), "");
}

TEST(Jsonl, TruncatesToAStep) {
  const TempFolder folder;
  const auto path = folder / "x.jsonl";
  spill(path, "{\"step\":1}\n{\"step\":2,\"a\":1}\n{\"step\":10}\n{\"step\":3}\n{\"st");
  truncate_jsonl_after(path, 10);
  EXPECT_EQ(slurp(path), "{\"step\":1}\n{\"step\":2,\"a\":1}\n{\"step\":10}\n{\"step\":3}\n");
  truncate_jsonl_after(path, 3);  // a line in the middle goes
  EXPECT_EQ(slurp(path), "{\"step\":1}\n{\"step\":2,\"a\":1}\n{\"step\":3}\n");
  truncate_jsonl_after(path, 1);  // only an end goes
  EXPECT_EQ(slurp(path), "{\"step\":1}\n");
  truncate_jsonl_after(path, 0);
  EXPECT_EQ(slurp(path), "");
  truncate_jsonl_after(folder / "absent.jsonl", 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "absent.jsonl"));
}

TEST(Jsonl, ReadsTheStepWhereverItStandsAndKeepsWhatItCannotRead) {
  const TempFolder folder;
  const auto path = folder / "x.jsonl";
  spill(path, "{\"a\":1, \"step\": 5}\nnot json\n{\"b\":2}\n{\"step\":5.5}\n{\"a\":1, \"step\": 4}\n");
  truncate_jsonl_after(path, 4);
  EXPECT_EQ(slurp(path), "not json\n{\"b\":2}\n{\"step\":5.5}\n{\"a\":1, \"step\": 4}\n");
}

TEST(Jsonl, ErrorsNameTheFile) {
  const TempFolder folder;
  spill(folder / "file", "x");
  try {
    JsonlWriter writer(folder / "file/x.jsonl");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find((folder / "file").string()), std::string::npos) << error.what();
  }
  JsonlWriter full("/dev/full");
  EXPECT_THROW(full.append("{}"), IoError);
}

}  // namespace
}  // namespace tandem
