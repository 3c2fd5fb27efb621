// File systems, their speed and room, clocks.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "preflight/clock_skew.h"
#include "preflight/disk.h"
#include "preflight/file_system.h"
#include "preflight/storage.h"
#include "preflight/tree.h"

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr const char* kMounts =
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "30 22 0:40 / /mnt/lustre rw shared:1 - lustre 10.0.0.1@o2ib:/scratch rw,flock\n"
    "31 22 0:41 / /mnt/lustre/own\\040disk rw - xfs /dev/sdb rw\n"
    "32 22 0:42 / /home rw - nfs4 server:/home rw,vers=4.2\n";

TEST(FileSystem, TheLongestMountPointDecides) {
  EXPECT_EQ(mount_of(kMounts, "/opt/x")->kind, "ext4");
  EXPECT_EQ(mount_of(kMounts, "/mnt/lustre/run")->kind, "lustre");
  EXPECT_EQ(mount_of(kMounts, "/mnt/lustre/run")->source, "10.0.0.1@o2ib:/scratch");
  EXPECT_EQ(mount_of(kMounts, "/mnt/lustre/own disk/run")->kind, "xfs");
  EXPECT_EQ(mount_of(kMounts, "/mnt/lustre2")->kind, "ext4");  // not below /mnt/lustre
  EXPECT_EQ(mount_of(kMounts, "/home")->kind, "nfs4");
  EXPECT_FALSE(mount_of("broken line\n", "/home"));
}

TEST(FileSystem, KindsByMagic) {
  EXPECT_EQ(kind_of_magic(0x0BD00BD0), "lustre");
  EXPECT_EQ(kind_of_magic(0x6969), "nfs");
  EXPECT_FALSE(kind_of_magic(0x12345678));
  for (const char* kind : {"lustre", "nfs4", "beegfs", "gpfs", "fuse.sshfs"}) EXPECT_TRUE(is_shared(kind)) << kind;
  for (const char* kind : {"ext4", "xfs", "tmpfs", "overlay"}) EXPECT_FALSE(is_shared(kind)) << kind;
}

std::vector<std::byte> lustre_attribute(uint32_t magic, uint32_t stripe_bytes, uint16_t count) {
  std::vector<std::byte> bytes(32);
  std::memcpy(bytes.data(), &magic, 4);
  std::memcpy(bytes.data() + 24, &stripe_bytes, 4);
  std::memcpy(bytes.data() + 28, &count, 2);
  return bytes;
}

TEST(FileSystem, LustreLayouts) {
  const auto plain = parse_lustre_layout(lustre_attribute(0x0BD10BD0, 4 << 20, 8));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->stripe_bytes, 4u << 20);
  EXPECT_EQ(plain->stripe_count, 8u);
  std::vector<std::byte> composite(80);
  const uint32_t magic = 0x0BD60BD0, offset = 80;
  std::memcpy(composite.data(), &magic, 4);
  std::memcpy(composite.data() + 56, &offset, 4);
  for (const std::byte b : lustre_attribute(0x0BD30BD0, 1 << 20, 2)) composite.push_back(b);
  const auto first = parse_lustre_layout(composite);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->stripe_count, 2u);
  EXPECT_FALSE(parse_lustre_layout(lustre_attribute(0x11111111, 1, 1)));
  EXPECT_FALSE(parse_lustre_layout(std::span(composite).first(10)));
}

TEST(FileSystem, OfAFolderThatIsNotThereYet) {
  const FileSystem files = file_system_of(std::filesystem::temp_directory_path() / "not" / "yet", SystemFiles());
  EXPECT_NE(files.kind, "");
  EXPECT_GT(files.total_bytes, 0);
}

FileSystem files_of(const std::string& kind, bool shared) {
  FileSystem files;
  files.kind = kind, files.shared = shared, files.memory = kind == "tmpfs";
  files.total_bytes = files.free_bytes = 100 * kGiB;
  return files;
}

StorageOptions options_of(const Tree& tree, double write, double read) {
  StorageOptions options;
  options.folder = tree.root() / "run";
  options.test_bytes = 1 << 20;
  options.measure = [=](const std::filesystem::path&, int64_t) { return Throughput{write, read}; };
  return options;
}

TEST(Storage, TheFloorIsHeldByBothDirections) {
  Tree tree;
  StorageOptions options = options_of(tree, 3e9, 2.5e9);
  EXPECT_EQ(check_storage(options, files_of("lustre", true)).verdict, Verdict::kPass);
  options.least_bytes_per_s = 2e9;
  EXPECT_EQ(check_storage(options, files_of("lustre", true)).verdict, Verdict::kPass);
  options.measure = options_of(tree, 3e9, 1.5e9).measure;
  const Finding slow = check_storage(options, files_of("lustre", true));
  EXPECT_EQ(slow.verdict, Verdict::kFail);
  EXPECT_NE(slow.why.find("read at 1.50 GB/s"), std::string::npos) << slow.why;
  EXPECT_TRUE(std::filesystem::exists(options.folder));
}

TEST(Storage, SeveralMachinesNeedAFileSystemThatAllSee) {
  Tree tree;
  StorageOptions options = options_of(tree, 1e9, 1e9);
  options.nodes = 4;
  EXPECT_EQ(check_storage(options, files_of("nfs4", true)).verdict, Verdict::kPass);
  EXPECT_EQ(check_storage(options, files_of("ext4", false)).verdict, Verdict::kFail);
  options.nodes = 1;
  EXPECT_EQ(check_storage(options, files_of("ext4", false)).verdict, Verdict::kPass);
  EXPECT_EQ(check_storage(options, files_of("tmpfs", false)).verdict, Verdict::kWarn);
}

TEST(Storage, OneStripeForLargeCheckpointsIsWarnedOf) {
  Tree tree;
  StorageOptions options = options_of(tree, 1e9, 1e9);
  options.checkpoint_bytes = 10 * kGiB;
  FileSystem files = files_of("lustre", true);
  files.stripes = StripeLayout{1 << 20, 8};
  EXPECT_EQ(check_storage(options, files).verdict, Verdict::kPass);
  files.stripes->stripe_count = 1;
  const Finding finding = check_storage(options, files);
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_NE(finding.remedy.find("lfs setstripe"), std::string::npos);
}

TEST(Storage, AFolderThatCannotBeMadeFails) {
  Tree tree;
  tree.write("/file", "x");
  StorageOptions options = options_of(tree, 1e9, 1e9);
  options.folder = tree.root() / "file" / "run";
  EXPECT_EQ(check_storage(options, files_of("ext4", false)).verdict, Verdict::kFail);
}

TEST(Storage, MeasuresARealFolderAndLeavesNothing) {
  Tree tree;
  const Throughput speed = measure_storage(tree.root(), 8 << 20);
  EXPECT_GT(speed.write, 0);
  EXPECT_GT(speed.read, 0);
  EXPECT_TRUE(std::filesystem::is_empty(tree.root()));
  EXPECT_THROW(measure_storage(tree.root() / "absent", 1), IoError);
}

TEST(Disk, RoomForOneMoreThanAreKept) {
  FileSystem files = files_of("ext4", false);  // 100 GiB
  DiskNeed need{10 * kGiB, 3, 0, 16 * kGiB, "/data/run"};
  EXPECT_EQ(check_disk(need, files).verdict, Verdict::kPass);  // 4 * 10 + 16
  need.most_kept = 9;
  EXPECT_EQ(check_disk(need, files).verdict, Verdict::kWarn);  // 10 * 10 + 16
  need.saves = 2;
  EXPECT_EQ(check_disk(need, files).verdict, Verdict::kPass);  // 2 * 10 + 16
  need.checkpoint_bytes = 101 * kGiB;
  const Finding failed = check_disk(need, files);
  EXPECT_EQ(failed.verdict, Verdict::kFail);
  EXPECT_NE(failed.why.find("101.00 GiB"), std::string::npos);
  EXPECT_NE(failed.why.find("/data/run"), std::string::npos);
}

TEST(Disk, SaysWhenKeepingAllFillsIt) {
  const Finding finding = check_disk({10 * kGiB, 0, 0, 0}, files_of("ext4", false));
  EXPECT_EQ(finding.verdict, Verdict::kPass);
  ASSERT_EQ(finding.details.size(), 1u);
  EXPECT_NE(finding.details[0].find("after 10"), std::string::npos);
}

TEST(Clock, SkewBeyondTheBoundFails) {
  const auto skewed = [](double by) { return [by](const std::filesystem::path&) { return by; }; };
  EXPECT_EQ(check_clock("/x", 1, skewed(0.5)).verdict, Verdict::kPass);
  EXPECT_EQ(check_clock("/x", 1, skewed(3)).verdict, Verdict::kFail);
  const Finding behind = check_clock("/x", 1, skewed(-3));
  EXPECT_EQ(behind.verdict, Verdict::kFail);
  EXPECT_NE(behind.why.find("3.000 s behind"), std::string::npos) << behind.why;
}

TEST(Clock, OfThisMachineAgainstItsOwnDiskIsNothing) {
  Tree tree;
  EXPECT_LT(std::abs(clock_ahead(tree.root())), 0.1);
  EXPECT_EQ(check_clock(tree.root() / "absent", 1).verdict, Verdict::kFail);
}

}  // namespace
}  // namespace tandem
