#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "reports/records/evidence.h"
#include "reports/records/json_lines.h"

/// What recorded gates of several kernels, packages and devices say together, and what changed between two of them.
namespace samestate {

/// Failures that are one fault to a reader, as a gate's summary groups them (failure_groups.h).
struct BoardDefect {
  std::string what;                ///< "form chunked, law reset: CAUSE (only with l2norm=1)"
  std::string reason;              ///< of the first
  std::vector<std::string> lines;  ///< the case lines, that of the smallest case first
};

/// A kernel of one version on one device under one contract.
struct BoardRow {
  std::string kernel;
  /// Of the packages that it was imported with: "fla 0.6.0, torch 2.11.0", behind them the hash of a kernel's own file,
  /// "mine.py e961848c"; of ours samestate's.
  std::string versions;
  std::string device;  ///< cpu, or the accelerator's name
  std::string contract;
  std::string date;  ///< of the newest run, as 2026-11-29; empty: its file says none
  std::int64_t cases = 0, passed = 0, failed = 0, vacuous = 0, unsupported = 0;
  std::int64_t planned = 0;  ///< what the runs' plans had; 0: nobody recorded it
  /// Error over bound: the median of the cases that passed, and the worst of those and of the failures, of which one that
  /// gave nothing to compare counts as infinite. NaN: there is none.
  double median = std::numeric_limits<double>::quiet_NaN();
  double worst = std::numeric_limits<double>::quiet_NaN();
  std::string worst_line;
  std::int64_t order = 0;   ///< of its newest run among the board's, by date
  bool newest = true;       ///< no other row of this kernel, device and contract is of a later run
  std::int64_t beyond = 0;  ///< of a nearest card: passes that lie beyond the twin's limit
  std::vector<BoardDefect> defects;
  std::string driver = {}, toolkit = {};  ///< of the newest run on a device
  std::string sources =
      {};  ///< of a kernel of ours on a device: the hash of its sources that ran (evidence.h)
  std::set<std::string> passing = {};  ///< lines that passed; not in a board's data file

  [[nodiscard]] bool nearest() const { return contract.find("card:nearest") != std::string::npos; }
};

struct Board {
  std::vector<BoardRow> rows;      ///< by kernel, versions, device and contract
  std::vector<std::string> notes;  ///< files without a case, runs that were cut
  std::int64_t incomplete = 0;     ///< files that notes are of
  /// The last of each case, kernel and device that `samestate bench` recorded.
  std::vector<TimedEvidence> timings = {};
};

/// A difference that a reader wants to know of.
struct BoardChange {
  std::string kernel, device, contract;
  std::string text;    ///< "version fla 0.5.1 is now 0.6.0"
  bool worse = false;  ///< a failure that was none, a ratio that grew
};

/// The board of the *.jsonl files and the digests (digest.h) of folders, or of digests that are named. Of a case line that several
/// runs have, the newest run's record counts; of a row that a digest has too, the newer row; of a kernel of ours on a device no row of
/// sources before those that ran last. A case that was started and never ended is a note. `check` is called with each record and
/// throws Error for one that cannot be.
/// Throws Error for a file that is none or no record of runs, and where nothing holds a case.
[[nodiscard]] Board read_board(std::span<const std::filesystem::path> folders,
                               const std::function<void(const Record&)>& check = {});
[[nodiscard]] inline Board read_board(const std::filesystem::path& folder,
                                      const std::function<void(const Record&)>& check = {}) {
  return read_board(std::span(&folder, 1), check);
}

/// Sets BoardRow::newest of all rows.
void mark_newest(Board& board);

/// What is different of `after`, the worse first: kernels, devices and contracts that are new or gone, versions, failures that
/// are new, gone or no longer run, verdicts' counts, a worst ratio that is twice what it was, a card.
[[nodiscard]] std::vector<BoardChange> board_changes(const Board& before, const Board& after);

}  // namespace samestate
