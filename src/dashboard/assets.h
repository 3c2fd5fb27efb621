// The page's files, built into the program from src/dashboard/web and third_party (cmake/embed.cmake).
#pragma once

#include <span>
#include <string_view>

namespace tandem {

struct Asset {
  std::string_view path;  // "app.js"
  std::string_view content;
};

std::span<const Asset> dashboard_assets();

}  // namespace tandem
