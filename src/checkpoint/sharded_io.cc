#include "checkpoint/sharded_io.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/prefetch.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSlicesKey = "tandem.slices";

int64_t product(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string name_in_file(const TensorSlice& slice, size_t index) { return slice.name + "#" + std::to_string(index); }

bool lies_inside(const TensorSlice& slice) {
  const size_t dims = slice.global_shape.size();
  if (slice.start.size() != dims || slice.shape.size() != dims) return false;
  for (size_t d = 0; d < dims; ++d)
    if (slice.start[d] < 0 || slice.shape[d] < 0 || slice.start[d] > slice.global_shape[d] - slice.shape[d])
      return false;
  return true;
}

// Calls run(offset in a, offset in b, length), in elements, for each run of the last dim that the rectangles share.
// Returns the elements they share.
template <class Run>
int64_t each_shared_run(std::span<const int64_t> start_a, std::span<const int64_t> shape_a,
                        std::span<const int64_t> start_b, std::span<const int64_t> shape_b, const Run& run) {
  const size_t dims = shape_a.size();
  std::vector<int64_t> low(dims), size(dims);
  for (size_t d = 0; d < dims; ++d) {
    low[d] = std::max(start_a[d], start_b[d]);
    size[d] = std::min(start_a[d] + shape_a[d], start_b[d] + shape_b[d]) - low[d];
    if (size[d] <= 0) return 0;
  }
  const int64_t length = dims == 0 ? 1 : size.back(), runs = product(size) / length;
  const auto offset = [&](std::span<const int64_t> at, std::span<const int64_t> start, std::span<const int64_t> shape) {
    int64_t sum = 0;
    for (size_t d = 0; d < dims; ++d) sum = sum * shape[d] + at[d] - start[d];
    return sum;
  };
  std::vector<int64_t> at = low;
  for (int64_t i = 0; i < runs; ++i) {
    run(offset(at, start_a, shape_a), offset(at, start_b, shape_b), length);
    for (size_t d = dims > 0 ? dims - 1 : 0; d-- > 0;) {  // the next row
      if (++at[d] < low[d] + size[d]) break;
      at[d] = low[d];
    }
  }
  return runs * length;
}

bool overlap(const TensorSlice& a, const TensorSlice& b) {
  return each_shared_run(a.start, a.shape, b.start, b.shape, [](int64_t, int64_t, int64_t) {}) > 0;
}

}  // namespace

size_t TensorSlice::num_bytes() const { return TensorSpec{name, dtype, shape}.num_bytes(); }

void write_slices(const fs::path& path, const std::vector<TensorSlice>& slices, const FetchSlice& fetch,
                  WritePace* pace) {
  std::vector<TensorSpec> specs;
  std::map<std::string, size_t> index;
  json places = json::object();
  for (size_t i = 0; i < slices.size(); ++i) {
    const TensorSlice& slice = slices[i];
    check(lies_inside(slice), "a slice of " + slice.name + " lies outside its tensor");
    const std::string name = name_in_file(slice, i);
    specs.push_back({name, slice.dtype, slice.shape});
    index[name] = i;
    places[name] = {{"name", slice.name}, {"global_shape", slice.global_shape}, {"start", slice.start}};
  }
  write_safetensors(
      path, std::move(specs), [&](const TensorSpec& spec) { return fetch(index.at(spec.name)); },
      {{"format", "pt"}, {kSlicesKey, places.dump()}}, pace);
}

std::vector<TensorSlice> slices_of(const SafetensorsFile& file) {
  std::vector<TensorSlice> slices;
  const auto text = file.metadata().find(kSlicesKey);
  const json places = text == file.metadata().end() ? json::object() : json::parse(text->second, nullptr, false);
  if (!places.is_object())
    throw IoError(file.path().string() + ": the places of its tensors cannot be read; it is broken");
  for (const TensorView& tensor : file.tensors()) {
    TensorSlice& slice = slices.emplace_back();
    slice = {tensor.name, tensor.dtype, tensor.shape, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    if (!places.contains(tensor.name)) continue;
    try {
      const json& place = places.at(tensor.name);
      slice.name = place.at("name");
      slice.global_shape = place.at("global_shape").get<std::vector<int64_t>>();
      slice.start = place.at("start").get<std::vector<int64_t>>();
    } catch (const json::exception&) {
      throw IoError(file.path().string() + ": the place of tensor " + tensor.name + " cannot be read; it is broken");
    }
    if (!lies_inside(slice))
      throw IoError(file.path().string() + ": tensor " + tensor.name + " lies outside its whole; it is broken");
  }
  return slices;
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  const WeightFolder weights(folder);
  std::vector<fs::path> files;
  for (const std::string& name : weights.names()) files.push_back(weights.file_of(name));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

namespace {

std::vector<fs::path> tensor_files(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw IoError(folder.string() + " is not a folder of tensors");
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

ShardedFolder::ShardedFolder(const fs::path& folder) : ShardedFolder(folder, tensor_files(folder)) {}

ShardedFolder::ShardedFolder(const fs::path& folder, const std::vector<fs::path>& paths) : folder_(folder) {
  for (const fs::path& path : paths) {
    files_.emplace_back(path);
    const auto slices = slices_of(files_.back());
    for (size_t i = 0; i < slices.size(); ++i) {
      auto& known = tensors_[slices[i].name];
      if (!known.empty() &&
          (known[0].slice.global_shape != slices[i].global_shape || known[0].slice.dtype != slices[i].dtype))
        throw IoError(path.string() + ": tensor " + slices[i].name + " has another shape or type than in " +
                      files_[known[0].file].path().filename().string());
      const bool copy = std::ranges::any_of(known, [&](const Part& part) {  // of a replicated tensor
        return part.slice.start == slices[i].start && part.slice.shape == slices[i].shape;
      });
      if (copy) continue;
      for (const Part& part : known)
        if (overlap(part.slice, slices[i]))
          throw IoError(path.string() + ": tensor " + slices[i].name + " overlaps what " +
                        files_[part.file].path().filename().string() + " holds; the files are of different layouts");
      known.push_back({files_.size() - 1, i, slices[i]});
    }
  }
}

std::vector<std::string> ShardedFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, parts] : tensors_) names.push_back(name);
  return names;
}

const std::vector<ShardedFolder::Part>& ShardedFolder::parts(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw IoError("tensor " + name + " is not among those of " + folder_.string());
  return found->second;
}

const std::vector<int64_t>& ShardedFolder::shape(const std::string& name) const {
  return parts(name)[0].slice.global_shape;
}
DType ShardedFolder::dtype(const std::string& name) const { return parts(name)[0].slice.dtype; }

size_t ShardedFolder::read(const std::string& name, std::span<const int64_t> start, std::span<const int64_t> shape,
                           std::span<std::byte> out) const {
  const auto& all = parts(name);
  const size_t element = dtype_size(all[0].slice.dtype);
  check(start.size() == all[0].slice.global_shape.size() && shape.size() == start.size(),
        "a rectangle of " + name + " has another number of dims");
  check(out.size() == static_cast<size_t>(product(shape)) * element, "the room for " + name + " has another size");
  int64_t found = 0;
  for (const Part& part : all) {
    const std::byte* from = files_[part.file].tensors()[part.tensor].bytes.data();
    found += each_shared_run(part.slice.start, part.slice.shape, start, shape, [&](int64_t a, int64_t b, int64_t n) {
      std::memcpy(out.data() + static_cast<size_t>(b) * element, from + static_cast<size_t>(a) * element,
                  static_cast<size_t>(n) * element);
    });
  }
  if (found < product(shape))
    throw IoError(folder_.string() + ": a part of tensor " + name + " is in none of its files; a rank's is missing");
  return static_cast<size_t>(found) * element;
}

void ShardedFolder::will_read(const std::string& name, std::span<const int64_t> start,
                              std::span<const int64_t> shape) const {
  for (const Part& part : parts(name)) {
    const size_t element = dtype_size(part.slice.dtype);
    int64_t first = -1, last = -1;
    each_shared_run(part.slice.start, part.slice.shape, start, shape, [&](int64_t a, int64_t, int64_t n) {
      if (first < 0) first = a;
      last = a + n;
    });
    if (first < 0) continue;
    will_need(files_[part.file].tensors()[part.tensor].bytes.subspan(static_cast<size_t>(first) * element,
                                                                     static_cast<size_t>(last - first) * element));
  }
}

}  // namespace tandem
