#include "checkpoint/safetensors.h"

#include <sys/resource.h>

#include <csignal>

#include "base/error.h"
#include "checkpoint/scratch_folder.h"

namespace tandem {
namespace {

// Written by the Python package safetensors 0.5.3.
const std::filesystem::path kGolden = TANDEM_TEST_DATA "/../checkpoint/golden.safetensors";

template <class T>
std::vector<T> values_of(const TensorView* tensor) {
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

TEST(Safetensors, ReadsWhatThePythonPackageWrote) {
  const SafetensorsFile file(kGolden);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  const auto* a = file.find("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(values_of<float>(a), (std::vector<float>{0.0f, -1.5f, 3.25f, 1e-30f, 65504.0f, 0.997f}));
  const auto* norm = file.find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->dtype, DType::kBF16);  // 1, -2, 0.5, 0, -0.25, 0.99609375, 128, -0.015625
  EXPECT_EQ(values_of<uint16_t>(norm),
            (std::vector<uint16_t>{0x3F80, 0xC000, 0x3F00, 0x0000, 0xBE80, 0x3F7F, 0x4300, 0xBC80}));
  EXPECT_EQ(values_of<int64_t>(file.find("scalar")), std::vector<int64_t>{-7});
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_TRUE(file.find("empty")->bytes.empty());
  EXPECT_EQ(values_of<uint8_t>(file.find("flag")), (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, WritesThePythonPackagesBytes) {
  const ScratchFolder scratch;
  const SafetensorsFile golden(kGolden);
  auto tensors = golden.tensors();
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(scratch / "again.safetensors", tensors);
  EXPECT_EQ(read_file(scratch / "again.safetensors"), read_file(kGolden));
}

TEST(Safetensors, ReleasedPagesCanBeReadAgain) {
  const SafetensorsFile file(kGolden);
  const auto* tensor = file.find("a.weight");
  const auto before = values_of<float>(tensor);
  file.release(*tensor);
  EXPECT_EQ(values_of<float>(tensor), before);
  file.release();
  EXPECT_EQ(values_of<float>(tensor), before);
}

struct Broken {
  const char* name;
  std::string bytes;
  const char* says;
};

std::string one_tensor(const std::string& entry, const std::string& data) {
  return safetensors_bytes(R"({"w":)" + entry + "}", data);
}

TEST(Safetensors, RefusesBrokenFiles) {
  const std::string eight(8, 'x');
  const std::string long_header = std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8) + "{}";
  const Broken cases[] = {
      {"empty", "", "shorter than its header says"},
      {"seven bytes", "1234567", "shorter than its header says"},
      {"header beyond the file", long_header, "shorter than its header says"},
      {"data cut", one_tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})", eight),
       "shorter than its header says"},
      {"data left over", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", eight),
       "4 bytes after the last tensor"},
      {"lfs pointer", "version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"not json", safetensors_bytes("{\"w\":", ""), "broken at byte"},
      {"not an object", safetensors_bytes("[]", ""), "not a JSON object"},
      {"deep", safetensors_bytes(R"({"w":{"dtype":[[[]]]}})", ""), "nested too deeply"},
      {"name twice",
       safetensors_bytes(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                         eight),
       "'w' stands twice"},
      {"no shape", one_tensor(R"({"dtype":"F32","data_offsets":[0,8]})", eight), "lacks 'shape'"},
      {"unknown type", one_tensor(R"({"dtype":"F12","shape":[2],"data_offsets":[0,8]})", eight), "F12"},
      {"negative size", one_tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", eight), "whole numbers"},
      {"fraction", one_tensor(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", eight), "whole numbers"},
      {"overflow", one_tensor(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})", eight),
       "impossible"},
      {"descending", one_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", eight), "ascending"},
      {"size and shape differ", one_tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", eight),
       "needs 12 bytes"},
      {"hole", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", eight), "does not start where"},
      {"overlap",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                         R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                         eight),
       "'b' does not start where"},
      {"metadata", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), "not a text"},
  };
  const ScratchFolder scratch;
  for (const auto& broken : cases) {
    SCOPED_TRACE(broken.name);
    const auto path = scratch / "broken.safetensors";
    put(path, broken.bytes);
    expect_names(error_of<IoError>([&] { const SafetensorsFile file(path); }), {broken.says, path.string()});
  }
}

// The limit on a file's size stands for a full disk: a write fails half way.
TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const ScratchFolder scratch;
  const auto path = scratch / "w.safetensors";
  put(path, "old");
  const std::vector<float> values(100'000, 1.0f);
  const std::vector<TensorView> tensors{view_of("w", values, {100'000})};
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{65536, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of<IoError>([&] { write_safetensors(path, tensors); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  expect_names(error, {"cannot write", path.string()});
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

// CKPT-2: what a resumed run starts from is the fp32 master, bit for bit. In bf16, 0.997 would be 0.99609375.
TEST(Safetensors, Fp32MastersSurviveBitForBit) {
  const ScratchFolder scratch;
  const std::vector<float> masters{0.997f, 0.999f, 0.01991953f, 0.01901953f};
  write_safetensors(scratch / "m.safetensors", std::vector{view_of("master", masters, {4})});
  const SafetensorsFile file(scratch / "m.safetensors");
  EXPECT_EQ(values_of<float>(file.find("master")), masters);
}

TEST(Safetensors, FetchesOneTensorAtATimeInTheOrderOfTheFile) {
  const ScratchFolder scratch;
  std::vector<float> staging;
  std::vector<std::string> asked;
  const FetchBytes fetch = [&](const TensorSpec& spec) {
    asked.push_back(spec.name);
    staging.assign(spec.num_bytes() / 4, static_cast<float>(asked.size()));
    return std::as_bytes(std::span(staging));
  };
  write_safetensors(scratch / "f.safetensors", {{"c", DType::kF32, {2}}, {"a", DType::kF32, {3}}}, fetch);
  EXPECT_EQ(asked, (std::vector<std::string>{"a", "c"}));
  const SafetensorsFile file(scratch / "f.safetensors");
  EXPECT_EQ(values_of<float>(file.find("a")), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values_of<float>(file.find("c")), (std::vector<float>{2, 2}));
}

}  // namespace
}  // namespace tandem
