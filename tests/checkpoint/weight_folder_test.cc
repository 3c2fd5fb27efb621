// MODEL-1: a model in two shards, and everything that can be wrong with it.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class TwoShards : public testing::Test {
 protected:
  TwoShards() {
    write_safetensors(first_, std::vector{view_of("a", a_, {2, 2})});
    write_safetensors(second_, std::vector{view_of("b", b_, {40})});
    put_index({{"a", first_.filename()}, {"b", second_.filename()}});
  }

  void put_index(const std::map<std::string, std::string>& map) {
    put(index_, nlohmann::json{{"metadata", {{"total_size", 176}}}, {"weight_map", map}}.dump());
  }
  std::string error() const {
    return error_of<IoError>([&] { const WeightFolder weights(scratch_.path()); });
  }
  static float first_value(const TensorView& tensor) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data(), sizeof(value));
    return value;
  }

  ScratchFolder scratch_;
  std::vector<float> a_{1, 2, 3, 4}, b_ = std::vector<float>(40, 5.0f);
  fs::path first_ = scratch_ / "model-00001-of-00002.safetensors";
  fs::path second_ = scratch_ / "model-00002-of-00002.safetensors";
  fs::path index_ = scratch_ / "model.safetensors.index.json";
};

TEST_F(TwoShards, Reads) {
  const WeightFolder weights(scratch_.path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(weights.get("a").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(first_value(weights.get("b")), 5.0f);
  EXPECT_EQ(weights.file_of("b"), second_);
  weights.release("b");
  weights.release();
  EXPECT_EQ(first_value(weights.get("b")), 5.0f);
  EXPECT_FALSE(weights.contains("c"));
  expect_names(error_of<IoError>([&] { weights.get("c"); }), {"'c'", scratch_.path().string()});
}

TEST_F(TwoShards, MissingShardIsNamed) {
  fs::remove(second_);
  expect_names(error(), {second_.string(), "missing"});
}

TEST_F(TwoShards, TruncatedShardIsNamed) {
  fs::resize_file(second_, fs::file_size(second_) - 100);
  expect_names(error(), {second_.string(), "the file is shorter than its header says"});
}

TEST_F(TwoShards, StrayFileIsNotRead) {
  const std::vector<float> other{9, 9, 9, 9};
  write_safetensors(scratch_ / "model.safetensors", std::vector{view_of("a", other, {2, 2})});
  put(scratch_ / "model-00003-of-00003.safetensors", "garbage");
  const WeightFolder weights(scratch_.path());
  EXPECT_EQ(first_value(weights.get("a")), 1.0f);
}

TEST_F(TwoShards, WrongShardIsNamedWithTheTensor) {
  put_index({{"a", second_.filename()}, {"b", second_.filename()}});
  expect_names(error(), {second_.string(), "'a'"});
}

TEST_F(TwoShards, PathsOutOfTheFolderAreRefused) {
  for (const char* shard : {"../x.safetensors", "/etc/passwd", "..", "", "sub/x.safetensors"}) {
    put_index({{"a", shard}});
    expect_names(error(), {index_.string(), "refused"});
  }
}

TEST_F(TwoShards, HeaderLongerThanTheFile) {
  auto bytes = read_file(second_);
  bytes[3] = 1;  // the length field grows by 2^24
  put(second_, bytes);
  expect_names(error(), {second_.string(), "the file is shorter than its header says"});
}

TEST_F(TwoShards, BrokenIndexIsNamed) {
  for (const char* text :
       {"", "{}", "[1]", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"x","a":"y"}})"}) {
    put(index_, text);
    expect_names(error(), {index_.string()});
  }
}

TEST_F(TwoShards, NoWeightsAtAll) {
  fs::remove(index_);
  expect_names(error(), {"neither", scratch_.path().string()});
  expect_names(error_of<IoError>([] { const WeightFolder weights("/nonexistent"); }), {"/nonexistent"});
}

TEST(WriteWeightFolder, ShardsBySizeAndSwitchesBackToOneFile) {
  const ScratchFolder scratch;
  const std::vector<float> ten(10, 1.0f), thirty(30, 2.0f);
  const std::vector<TensorView> tensors{view_of("c", ten, {10}), view_of("a", ten, {10}), view_of("b", thirty, {30})};
  write_weight_folder(scratch / "out", tensors, 100);  // 40, 120 and 40 bytes: none fits beside another
  EXPECT_TRUE(fs::exists(scratch / "out/model-00003-of-00003.safetensors"));
  const auto index = nlohmann::json::parse(read_file(scratch / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 200);
  EXPECT_EQ(index["weight_map"]["b"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(WeightFolder(scratch / "out").names(), (std::vector<std::string>{"a", "b", "c"}));

  write_weight_folder(scratch / "out", std::vector{tensors[0]});
  EXPECT_FALSE(fs::exists(scratch / "out/model.safetensors.index.json"));
  EXPECT_EQ(WeightFolder(scratch / "out").names(), (std::vector<std::string>{"c"}));

  write_weight_folder(scratch / "out", tensors, 160);  // a and b fit in one
  EXPECT_FALSE(fs::exists(scratch / "out/model.safetensors"));
  EXPECT_EQ(WeightFolder(scratch / "out").file_of("b").filename(), "model-00001-of-00002.safetensors");
}

}  // namespace
}  // namespace tandem
