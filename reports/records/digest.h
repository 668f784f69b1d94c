#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/records/board.h"

/// A board as a file: what is kept of recorded runs after their records, which are artefacts, have been
/// deleted. For each kernel, version, device and contract it has counts, ratios, the hash of the sources and
/// failing lines; for each timed case its numbers.
namespace samestate {

/// The rows and timings as JSON, together with `changes`; and the inverse, without the changes and the lines
/// that passed. parse_board throws Error, naming `name`, for invalid text.
[[nodiscard]] std::string board_json(const Board& board, const std::vector<BoardChange>& changes);
[[nodiscard]] Board parse_board(const std::string& text, const std::string& name);

/// A digest and its path.
struct Digest {
  std::filesystem::path path;
  Board board;
};

/// Throws Error for a file that cannot be read or is not a digest.
[[nodiscard]] Board read_digest(const std::filesystem::path& path);

/// Every digest in a folder, ordered by name. A *.json file of another format is not a digest, and a folder
/// that does not exist has none. Throws Error for a damaged digest, or invalid JSON.
[[nodiscard]] std::vector<Digest> digests_in(const std::filesystem::path& folder);

}  // namespace samestate
