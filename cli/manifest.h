#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace samestate::cli {

/// A case of `samestate export`: its file in the folder, and the line without a kernel.
struct ManifestEntry {
  std::string file, line;
};

/// The case, whoever computed it.
[[nodiscard]] std::string without_kernel(const std::string& line);

/// Reads a manifest.json, in which nothing is trusted; `path` stands before what is wrong. Throws Error: another format, no
/// case, a file that is not of the manifest's folder, a line that is no case.
[[nodiscard]] std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& path);

/// That of the folder. Throws Error, where it has none too.
[[nodiscard]] std::vector<ManifestEntry> read_manifest(const std::filesystem::path& folder);

}  // namespace samestate::cli
