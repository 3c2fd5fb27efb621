#include "base/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"

namespace tandem {
namespace {

TEST(SharedMemory, AnotherProcessWritesIntoIt) {
  const SharedMemory memory(1 << 16);
  const std::string path = memory.path();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const SharedMemory same = SharedMemory::open(path, 1 << 16);
    std::memcpy(same.bytes().data() + 40000, "here", 4);
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::memcmp(memory.bytes().data() + 40000, "here", 4), 0);
  EXPECT_EQ(memory.bytes()[39999], std::byte{0});
}

TEST(SharedMemory, ItOutlivesTheProcessThatFilledItAndNotItsMaker) {
  std::string path;
  {
    const SharedMemory memory(4096);
    path = memory.path();
    SharedMemory::open(path, 4096).bytes()[7] = std::byte{9};
    EXPECT_EQ(memory.bytes()[7], std::byte{9});
    EXPECT_THROW(SharedMemory::open(path, 8192), IoError);
  }
  EXPECT_THROW(SharedMemory::open(path, 4096), IoError);
}

TEST(SharedMemory, ItMoves) {
  SharedMemory memory(4096);
  memory.bytes()[0] = std::byte{5};
  const SharedMemory other = std::move(memory);
  EXPECT_EQ(other.bytes()[0], std::byte{5});
  EXPECT_EQ(other.bytes().size(), 4096U);
}

}  // namespace
}  // namespace tandem
