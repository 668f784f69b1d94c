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

/// Returns the line without its kernel, so that the same case from different kernels compares equal.
[[nodiscard]] std::string without_kernel(const std::string& line);

/// Parses a manifest.json, of which nothing is trusted; errors begin with `path`. Throws Error if the format is another
/// one, if there is no case, if a file is outside the manifest's folder, and if a line is not a case.
[[nodiscard]] std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& path);

/// Reads the manifest of a folder. Throws Error as above, and if there is none.
[[nodiscard]] std::vector<ManifestEntry> read_manifest(const std::filesystem::path& folder);

}  // namespace samestate::cli
