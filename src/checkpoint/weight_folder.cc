#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kIndexDepth = 4;  // other writers nest a little in "metadata"

// Shards lie beside their index; a name that leads elsewhere is an attack or an accident.
void check_shard_name(const std::string& shard, const fs::path& index) {
  if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of(std::string_view("/\\\0", 3)) != shard.npos)
    throw IoError(index.string() + ": shard name " + in_quotes(shard) +
                  " is not a file name in the same folder; refused");
}

}  // namespace

WeightFolder::WeightFolder(const fs::path& folder) : folder_(folder) {
  const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (!fs::is_directory(folder)) throw IoError(folder.string() + " is not a folder; give the folder of a model");
  if (fs::exists(index)) {
    open_indexed(index);
  } else if (fs::exists(single)) {
    files_.emplace_back(single);
    for (size_t i = 0; i < files_[0].tensors().size(); ++i) place_[files_[0].tensors()[i].name] = {0, i};
  } else {
    throw IoError(folder.string() + " holds neither model.safetensors nor model.safetensors.index.json" +
                  (fs::exists(folder / "pytorch_model.bin") ? "; convert its pytorch_model.bin first" : ""));
  }
  for (const auto& [name, place] : place_) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
}

void WeightFolder::open_indexed(const fs::path& index) {
  const auto root = parse_strict_json(read_file(index), kIndexDepth, index);
  const auto map = root.find("weight_map");
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty())
    throw IoError(index.string() + ": has no 'weight_map' from tensors to shards");
  std::map<std::string, size_t> file_index;
  for (const auto& [name, value] : map->items()) {
    if (!value.is_string()) throw IoError(index.string() + ": the shard of " + in_quotes(name) + " is not a file name");
    const auto shard = value.get<std::string>();
    const auto [known, is_new] = file_index.try_emplace(shard, files_.size());
    if (is_new) {
      check_shard_name(shard, index);
      if (!fs::exists(folder_ / shard))
        throw IoError((folder_ / shard).string() + " is missing, but " + index.filename().string() + " names it");
      files_.emplace_back(folder_ / shard);
    }
    const auto& file = files_[known->second];
    const TensorView* tensor = file.find(name);
    if (tensor == nullptr) {
      throw IoError(file.path().string() + ": tensor " + in_quotes(name) + " is not in it, but " +
                    index.filename().string() + " says so");
    }
    place_[name] = {known->second, static_cast<size_t>(tensor - file.tensors().data())};
  }
}

const WeightFolder::Place& WeightFolder::place(std::string_view name) const {
  const auto found = place_.find(std::string(name));
  if (found == place_.end())
    throw IoError("tensor " + in_quotes(name) + " is not among the weights of " + folder_.string());
  return found->second;
}

TensorView WeightFolder::get(std::string_view name) const {
  const auto& at = place(name);
  return files_[at.file].tensors()[at.tensor];
}

const fs::path& WeightFolder::file_of(std::string_view name) const { return files_[place(name).file].path(); }

void WeightFolder::release(std::string_view name) const {
  const auto& at = place(name);
  files_[at.file].release(files_[at.file].tensors()[at.tensor]);
}

void WeightFolder::release() const {
  for (const auto& file : files_) file.release();
}

}  // namespace tandem
