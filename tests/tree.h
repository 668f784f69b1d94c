#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

/// The sources of the tree as text, for the tests that read it.
namespace samestate::testing {

/// A path from the repository root and its text.
struct Source {
  std::string path;
  std::string text;
};

inline Source read(const std::filesystem::path& root, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return {std::filesystem::relative(path, root).generic_string(), text.str()};
}

/// Headers and sources, of C++ and CUDA, in the named folders of the root.
inline std::vector<Source> sources_of(const std::filesystem::path& root,
                                      const std::set<std::string>& folders) {
  std::vector<Source> sources;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh") {
        sources.push_back(read(root, entry.path()));
      }
    }
  }
  return sources;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace samestate::testing
