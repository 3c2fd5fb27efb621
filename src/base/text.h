// Small text tools.
#pragma once

#include <string_view>

namespace tandem {

constexpr std::string_view kWhiteSpace = " \t\r\n\f\v";

std::string_view stripped(std::string_view text);  // without white space around it

}  // namespace tandem
