#pragma once

#include <string>
#include <vector>

#include "reports/records/board.h"

namespace samestate {

/// A board as one self-contained page, in the style of the reports. `compared` says that `changes` come from
/// a comparison. The same input gives the same bytes.
[[nodiscard]] std::string board_html(const Board& board, const std::vector<BoardChange>& changes,
                                     bool compared, const std::string& title);

}  // namespace samestate
