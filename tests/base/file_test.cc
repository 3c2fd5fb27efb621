#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

size_t entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(WriteFileAtomic, WritesReplacesAndLeavesNothingBeside) {
  const ScratchFolder folder;
  for (const std::string& content :
       {std::string("first"), std::string(), std::string("a\0b\n", 4), std::string(3 << 20, 'x')}) {
    write_file_atomic(folder / "file", content);
    EXPECT_EQ(read_file(folder / "file"), content);
    EXPECT_EQ(entries(folder.path()), 1u);
  }
}

TEST(WriteFileAtomic, ReadersSeeTheOldOrTheNew) {
  const ScratchFolder folder;
  const std::string a(200000, 'a'), b(100000, 'b');
  write_file_atomic(folder / "file", a);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) write_file_atomic(folder / "file", i % 2 == 0 ? b : a);
    done = true;
  });
  int reads = 0;
  for (; !done || reads == 0; ++reads) {
    const std::string seen = read_file(folder / "file");
    ASSERT_TRUE(seen == a || seen == b) << seen.size();
  }
  writer.join();
}

TEST(WriteFileAtomic, FailuresNameThePathAndKeepTheOldFile) {
  const ScratchFolder folder;
  const auto missing = folder.path() / "no" / "file";
  EXPECT_NE(error_of<IoError>([&] { write_file_atomic(missing, "x"); }).find("no/file"), std::string::npos);
  std::filesystem::create_directories(folder / "taken");
  put(folder / "taken" / "inside", "kept");
  EXPECT_NE(error_of<IoError>([&] { write_file_atomic(folder / "taken", "x"); }).find("taken"), std::string::npos);
  EXPECT_EQ(read_file(folder / "taken" / "inside"), "kept");
  EXPECT_EQ(entries(folder.path()), 1u) << "a temporary file was left behind";
}

TEST(ReadFile, NamesWhatIsWrong) {
  const ScratchFolder folder;
  EXPECT_NE(error_of<IoError>([&] { read_file(folder / "absent"); }).find("absent"), std::string::npos);
  EXPECT_NE(error_of<IoError>([&] { read_file(folder.path()); }).find("folder"), std::string::npos);
}

TEST(MappedFile, MovesItsMapping) {
  const ScratchFolder folder;
  put(folder / "a", "0123456789");
  MappedFile first(folder / "a");
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().size(), 10u);
  EXPECT_EQ(static_cast<char>(second.bytes()[9]), '9');
  put(folder / "empty", "");
  second = MappedFile(folder / "empty");
  EXPECT_TRUE(second.bytes().empty());
}

TEST(ExpandUser, HomeOnlyInFront) {
  const std::string home = std::getenv("HOME");
  EXPECT_EQ(expand_user("~/x/y"), std::filesystem::path(home) / "x/y");
  EXPECT_EQ(expand_user("/a/~/b"), "/a/~/b");
  EXPECT_EQ(expand_user("~other/x"), "~other/x");
}

}  // namespace
}  // namespace tandem
