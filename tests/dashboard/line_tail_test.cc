#include "dashboard/line_tail.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "observe/temp_folder.h"

namespace tandem {
namespace {

struct Reader {
  explicit Reader(const std::filesystem::path& path) : tail(path) {}
  bool read(size_t most = 1 << 20) {
    return tail.read(most, {[this] {
                              ++restarts;
                              lines.clear();
                            },
                            [this](std::string_view line, uint64_t offset) {
                              lines.emplace_back(line);
                              offsets.push_back(offset);
                            }});
  }
  LineTail tail;
  std::vector<std::string> lines;
  std::vector<uint64_t> offsets;
  int restarts = 0;
};

void append(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

using Lines = std::vector<std::string>;

TEST(LineTail, WaitsForTheEndOfALine) {
  const TempFolder folder;
  const auto path = folder / "m.jsonl";
  Reader reader(path);
  EXPECT_FALSE(reader.read());  // no file yet
  append(path, "one\ntw");
  reader.read();
  EXPECT_EQ(reader.lines, Lines{"one"});
  append(path, "o\n\nthree\n");
  reader.read();
  EXPECT_EQ(reader.lines, (Lines{"one", "two", "", "three"}));
  EXPECT_EQ(reader.offsets, (std::vector<uint64_t>{0, 4, 8, 9}));
  reader.read();
  EXPECT_EQ(reader.lines.size(), 4u);
  EXPECT_EQ(reader.restarts, 0);
}

TEST(LineTail, ReadsAFileThatWasCutOrReplacedAnew) {
  const TempFolder folder;
  const auto path = folder / "m.jsonl";
  append(path, "1\n2\n3\n");
  Reader reader(path);
  reader.read();
  std::filesystem::resize_file(path, 2);
  reader.read();
  EXPECT_EQ(reader.lines, Lines{"1"});
  EXPECT_EQ(reader.restarts, 1);

  // Cut and grown past where it was before the next look.
  std::filesystem::resize_file(path, 0);
  append(path, "a\nb\nc\nd\n");
  reader.read();
  EXPECT_EQ(reader.lines, (Lines{"a", "b", "c", "d"}));

  std::filesystem::remove(path);
  reader.read();
  EXPECT_TRUE(reader.lines.empty());
  append(path, "new\n");
  reader.read();
  EXPECT_EQ(reader.lines, Lines{"new"});
}

TEST(LineTail, StopsAfterSoManyBytesAndGoesOn) {
  const TempFolder folder;
  const auto path = folder / "m.jsonl";
  const std::string long_line(3 << 20, 'x');  // longer than what is read at once
  append(path, long_line + "\nend\n");
  Reader reader(path);
  EXPECT_TRUE(reader.read(1));
  while (reader.read(1)) {
  }
  ASSERT_EQ(reader.lines.size(), 2u);
  EXPECT_EQ(reader.lines[0], long_line);
  EXPECT_EQ(read_part(path, reader.offsets[1], 3), "end");
  EXPECT_EQ(read_part(path, 1 << 30, 3), "");
}

}  // namespace
}  // namespace tandem
