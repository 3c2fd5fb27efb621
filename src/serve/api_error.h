// A request that gets an error for its reply.
#pragma once

#include <string>

#include "base/error.h"

namespace tandem {

class ApiError : public Error {
 public:
  // `param`: the request's field that is to blame, where it is one.
  ApiError(int status, const std::string& message, std::string param = {}, int retry_after_s = 0)
      : Error(message), status_(status), param_(std::move(param)), retry_after_s_(retry_after_s) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  int retry_after_s() const { return retry_after_s_; }  // 0: it says nothing of another try

 private:
  int status_;
  std::string param_;
  int retry_after_s_;
};

}  // namespace tandem
