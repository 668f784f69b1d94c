#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/records/board.h"

/// A board as a file: what is kept of recorded runs when their records, artefacts of the runs, are gone. Of each kernel, version, device
/// and contract the counts, ratios, hash of the sources and failing lines, of each timed case its numbers.
namespace samestate {

/// The rows and timings as JSON, `changes` beside them; and back, but for the changes and the lines that passed. parse_board
/// throws Error, naming `name`, for what is none.
[[nodiscard]] std::string board_json(const Board& board, const std::vector<BoardChange>& changes);
[[nodiscard]] Board parse_board(const std::string& text, const std::string& name);

/// A digest and where it lies.
struct Digest {
  std::filesystem::path path;
  Board board;
};

/// Throws Error for a file that cannot be read or is none.
[[nodiscard]] Board read_digest(const std::filesystem::path& path);

/// Every digest of a folder in order of name; a *.json file of another format is none, and a folder that does not exist has none.
/// Throws Error for one that is damaged, or no JSON.
[[nodiscard]] std::vector<Digest> digests_in(const std::filesystem::path& folder);

}  // namespace samestate
