// Portions of any size, and going on from anywhere.
#include "data/prompt_stream.h"

#include <gtest/gtest.h>

#include <fstream>

#include "observe/temp_folder.h"

namespace tandem {
namespace {

class Stream : public testing::Test {
 protected:
  Stream() {
    std::ofstream file(folder_.path() / "rows.jsonl");
    for (int i = 0; i < 7; ++i)
      file
          << R"({"data_source": "x", "prompt": [{"role": "user", "content": "p"}], "reward_model": {"ground_truth": "1"}})"
          << "\n";
    file.close();
    DatasetOptions options;
    options.files = {folder_.path() / "rows.jsonl"};
    options.max_prompt_length = 8;
    data_.emplace(options, [](const std::vector<Message>&) { return std::vector<TokenId>{1, 2}; });
    loader_.batch_size = 3;
    loader_.seed = 5;
  }
  std::vector<uint64_t> take(PromptStream& stream, size_t count) {
    std::vector<uint64_t> ids;
    for (const PromptPtr& prompt : stream.take(count)) ids.push_back(prompt->id);
    return ids;
  }
  TempFolder folder_;
  std::optional<PromptDataset> data_;
  LoaderOptions loader_;
};

TEST_F(Stream, PortionsDoNotChangeTheOrder) {
  PromptStream whole(*data_, loader_), parts(*data_, loader_);
  const auto all = take(whole, 18);
  std::vector<uint64_t> pieces;
  for (const size_t count : {1, 4, 3, 0, 10})
    for (const uint64_t id : take(parts, count)) pieces.push_back(id);
  EXPECT_EQ(pieces, all);
  PromptLoader loader(*data_, loader_);  // whole batches are the loader's
  PromptStream stream(*data_, loader_);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stream.take(3), loader.next().prompts);
  EXPECT_EQ(stream.state().taken, 0U);
  EXPECT_EQ(stream.state().loader, loader.state());
}

TEST_F(Stream, GoesOnFromAnywhere) {
  PromptStream whole(*data_, loader_);
  const auto all = take(whole, 20);
  for (size_t cut = 0; cut < 14; ++cut) {
    PromptStream first(*data_, loader_);
    take(first, cut);
    PromptStream second(*data_, loader_, first.state());
    EXPECT_EQ(take(second, 6), std::vector<uint64_t>(all.begin() + cut, all.begin() + cut + 6)) << cut;
  }
}

}  // namespace
}  // namespace tandem
