// A Ray of this machine alone that one run starts for itself and ends again. Other Rays of the machine are left alone.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem {

class RayCluster {
 public:
  // `ray start --head` by the program `ray` in TANDEM_RAY's bin folder, or in PATH. Waits until it answers.
  // ConfigError.
  RayCluster();
  ~RayCluster();
  RayCluster(const RayCluster&) = delete;
  RayCluster& operator=(const RayCluster&) = delete;

  const std::string& address() const { return address_; }  // host:port

 private:
  void end();

  std::string folder_, address_;
  pid_t pid_ = -1;
};

}  // namespace tandem
