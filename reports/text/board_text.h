#pragma once

#include <string>
#include <vector>

#include "reports/records/board.h"

namespace samestate {

/// A board as GitHub-flavoured Markdown: what changed, if something was compared; one row per kernel,
/// version, device and contract; and the known defects with their lines.
[[nodiscard]] std::string board_markdown(const Board& board, const std::vector<BoardChange>& changes,
                                         bool compared);

}  // namespace samestate
