// A folder of its own for a test, which stands in for / where a check reads the kernel's files.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "preflight/system_files.h"

namespace tandem {

class Tree {
 public:
  Tree() {
    std::string name = (std::filesystem::temp_directory_path() / "preflight-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  Tree& write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return *this;
  }
  const std::filesystem::path& root() const { return root_; }
  SystemFiles system() const { return SystemFiles(root_); }

 private:
  std::filesystem::path root_;
};

}  // namespace tandem
