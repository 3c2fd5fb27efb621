#include "kernels/device_ops.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace tandem::kernels {
namespace {

std::string find_library() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& path : {folder / "libtandem_cuda.so", folder / "../lib/tandem/libtandem_cuda.so"})
    if (std::filesystem::exists(path)) return path.string();
  return {};
}

std::string library_path() {
  if (std::string path = find_library(); !path.empty()) return path;
  throw ConfigError(
      "this build has no GPU library (libtandem_cuda.so beside the program); run ./dev build cuda, or take the CPU "
      "(trainer.device=cpu, or --device cpu)");
}

void* library() {
  static void* const handle = [] {
    const std::string path = library_path();
    // Memory that changes hands between rollout and update, as pages mapped one after another: none of it is lost to
    // segments of the wrong size. libtorch reads it when it is loaded.
    if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 0);
    void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) throw ConfigError("the GPU library does not load: " + std::string(dlerror()));
    return opened;
  }();
  return handle;
}

}  // namespace

// By the driver's own count, before anything of CUDA's runtime is loaded.
int num_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int gpus = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&gpus) == 0 ? gpus : 0;
}

void* device_function(const char* name) {
  void* function = dlsym(library(), name);
  check(function != nullptr, "libtandem_cuda.so is of another version than the program");
  return function;
}

const DeviceOps& device_ops() {
  static const DeviceOps* const ops = reinterpret_cast<const DeviceOps* (*)()>(device_function("tandem_device_ops"))();
  return *ops;
}

at::Device choose_device(std::string_view name) {
  if (name == "cpu") return at::kCPU;
  if (name == "auto" && (find_library().empty() || num_gpus() == 0)) return at::kCPU;
  if (num_gpus() == 0)
    throw ConfigError(
        "no NVIDIA driver on this machine, or no GPU that it sees (is CUDA_VISIBLE_DEVICES set?); take the CPU "
        "(trainer.device=cpu, or --device cpu)");
  device_ops();
  return at::Device(at::kCUDA, 0);
}

}  // namespace tandem::kernels
