// expect_error<IoError>([] { ... }, {"file", "row 2"}): the call throws that type, in one line that holds the parts.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem {

template <class Expected>
void expect_error(const std::function<void()>& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Expected& error) {
    const std::string text = error.what();
    for (const std::string& part : parts) EXPECT_NE(text.find(part), text.npos) << part << " is not in: " << text;
    EXPECT_EQ(text.find('\n'), text.npos) << text;
  }
}

}  // namespace tandem
