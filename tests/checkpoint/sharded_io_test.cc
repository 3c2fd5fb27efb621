// Any layout reads what any other wrote: the whole's every element is where it belongs.
#include "checkpoint/sharded_io.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

constexpr int64_t kRows = 7, kCols = 10;

float whole(int64_t row, int64_t col) { return static_cast<float>(row * 100 + col); }

struct Box {
  int64_t row, col, rows, cols;
};

std::vector<float> values_in(const Box& box) {
  std::vector<float> values;
  for (int64_t r = 0; r < box.rows; ++r)
    for (int64_t c = 0; c < box.cols; ++c) values.push_back(whole(box.row + r, box.col + c));
  return values;
}

void write_rank(const std::filesystem::path& path, const std::vector<Box>& boxes) {
  std::vector<TensorSlice> slices;
  std::vector<std::vector<float>> values;
  for (const Box& box : boxes) {
    slices.push_back({"w", DType::kF32, {kRows, kCols}, {box.row, box.col}, {box.rows, box.cols}});
    values.push_back(values_in(box));
  }
  write_slices(path, slices, [&](size_t i) { return std::as_bytes(std::span(values[i])); });
}

// Layouts as lists of each rank's boxes: whole, by rows, by columns, flat (pieces of rows), both ways, twice over.
const std::vector<std::vector<std::vector<Box>>> kLayouts = {
    {{{0, 0, 7, 10}}},
    {{{0, 0, 3, 10}}, {{3, 0, 4, 10}}},
    {{{0, 0, 7, 4}}, {{0, 4, 7, 6}}},
    {{{0, 0, 2, 10}, {2, 0, 1, 5}}, {{2, 5, 1, 5}, {3, 0, 3, 10}, {6, 0, 1, 1}}, {{6, 1, 1, 9}}},
    {{{0, 0, 4, 5}}, {{0, 5, 4, 5}}, {{4, 0, 3, 5}}, {{4, 5, 3, 5}}},
    {{{0, 0, 7, 10}}, {{0, 0, 7, 10}}},
};

TEST(ShardedFolder, EveryLayoutReadsEveryOther) {
  for (const auto& written : kLayouts) {
    const ScratchFolder folder;
    for (size_t rank = 0; rank < written.size(); ++rank)
      write_rank(folder / ("rank_" + std::to_string(rank) + ".safetensors"), written[rank]);
    const ShardedFolder file(folder.path());
    EXPECT_EQ(file.names(), std::vector<std::string>{"w"});
    EXPECT_EQ(file.shape("w"), (std::vector<int64_t>{kRows, kCols}));
    size_t read = 0, wanted = 0;
    for (const auto& layout : kLayouts)
      for (const auto& rank : layout)
        for (const Box& box : rank) {
          std::vector<float> got(static_cast<size_t>(box.rows * box.cols), -1);
          read += file.read("w", std::vector<int64_t>{box.row, box.col}, std::vector<int64_t>{box.rows, box.cols},
                            std::as_writable_bytes(std::span(got)));
          wanted += got.size() * sizeof(float);
          EXPECT_EQ(got, values_in(box));
        }
    EXPECT_EQ(read, wanted);  // nothing is read twice, not even of copies
  }
}

TEST(ShardedFolder, OtherShapesAndPlainFiles) {
  const ScratchFolder folder;
  std::vector<int64_t> cube(2 * 3 * 4);
  std::iota(cube.begin(), cube.end(), 0);
  const std::vector<int64_t> front(cube.begin(), cube.begin() + 12), back(cube.begin() + 12, cube.end());
  for (const auto& [name, start, values] : {std::tuple{"a", int64_t{0}, &front}, {"b", int64_t{1}, &back}})
    write_slices(folder / (std::string(name) + ".safetensors"),
                 {{"c", DType::kI64, {2, 3, 4}, {start, 0, 0}, {1, 3, 4}}},
                 [&](size_t) { return std::as_bytes(std::span(*values)); });
  const std::vector<float> plain = {1, 2, 3};
  write_safetensors(folder / "plain.safetensors", std::vector<TensorView>{view_of("v", plain, {3})});
  const ShardedFolder file(folder.path());
  std::vector<int64_t> got(2 * 2 * 2);
  file.read("c", std::vector<int64_t>{0, 1, 2}, std::vector<int64_t>{2, 2, 2}, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, (std::vector<int64_t>{6, 7, 10, 11, 18, 19, 22, 23}));
  std::vector<float> last(2);
  file.read("v", std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::as_writable_bytes(std::span(last)));
  EXPECT_EQ(last, (std::vector<float>{2, 3}));
  EXPECT_EQ(file.dtype("c"), DType::kI64);
}

TEST(ShardedFolder, SaysWhatIsMissingOrWrong) {
  const ScratchFolder folder;
  write_rank(folder / "rank_0.safetensors", {{0, 0, 3, 10}});
  const auto read = [&](int64_t row) {
    std::vector<float> out(kCols);
    ShardedFolder(folder.path())
        .read("w", std::vector<int64_t>{row, 0}, std::vector<int64_t>{1, kCols},
              std::as_writable_bytes(std::span(out)));
  };
  EXPECT_NO_THROW(read(2));
  expect_names(error_of<IoError>([&] { read(3); }), {"tensor w", "a rank's is missing"});
  expect_names(error_of<IoError>([&] { (void)ShardedFolder(folder.path()).shape("x"); }), {"tensor x"});
  const float value = 1;
  write_slices(folder / "rank_1.safetensors", {{"w", DType::kF32, {8, 10}, {7, 9}, {1, 1}}},
               [&](size_t) { return std::as_bytes(std::span(&value, 1)); });
  expect_names(error_of<IoError>([&] { read(0); }), {"rank_1.safetensors", "another shape"});
  write_safetensors(folder / "rank_1.safetensors", {{"w#0", DType::kF32, {1, 1}}},
                    [&](const TensorSpec&) { return std::as_bytes(std::span(&value, 1)); },
                    {{"tandem.slices", R"({"w#0": {"name": "w", "global_shape": [7, 10], "start": [7, 0]}})"}});
  expect_names(error_of<IoError>([&] { read(0); }), {"rank_1.safetensors", "outside"});
}

}  // namespace
}  // namespace tandem
