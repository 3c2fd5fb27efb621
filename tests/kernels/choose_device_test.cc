// Which device a name stands for where no GPU can be used: no driver, or a program without the GPU library beside it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "kernels/device_ops.h"

namespace tandem::kernels {
namespace {

bool has_driver() { return dlopen("libcuda.so.1", RTLD_LAZY) != nullptr; }

TEST(ChooseDevice, CpuIsTheCpuEverywhere) { EXPECT_TRUE(choose_device("cpu").is_cpu()); }

TEST(ChooseDevice, AutoIsTheCpuWithoutADriver) {
  if (has_driver()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_TRUE(choose_device("auto").is_cpu());
}

TEST(ChooseDevice, CudaSaysWhatIsMissingAndWhatToDo) {
  if (has_driver()) GTEST_SKIP() << "this machine has a driver";
  for (int attempt = 0; attempt < 2; ++attempt) {  // the first failure must not be remembered as an empty table
    try {
      choose_device("cuda");
      FAIL() << "a GPU was found";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("no NVIDIA driver on this machine"), std::string::npos) << text;
      EXPECT_NE(text.find("--device cpu"), std::string::npos) << text;
      EXPECT_NE(text.find("trainer.device=cpu"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
