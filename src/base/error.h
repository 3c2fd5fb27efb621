// The two families of failure. A user's mistake is an `Error` whose text says what is wrong, where, and what to do;
// a broken invariant of ours is reported by `check()` with its place in the source. Both are exceptions inside a
// process.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ConfigError : public Error {  // a key, a value or a combination of them
 public:
  using Error::Error;
};

class IoError : public Error {  // a file or folder that is absent, broken or cannot be written
 public:
  using Error::Error;
};

class DataError : public Error {  // a row, a prompt or a reward that cannot be used
 public:
  using Error::Error;
};

[[noreturn]] void fail_check(std::string_view what, std::source_location at);

// For invariants, never for user input.
inline void check(bool ok, std::string_view what, std::source_location at = std::source_location::current()) {
  if (!ok) [[unlikely]]
    fail_check(what, at);
}

}  // namespace tandem
