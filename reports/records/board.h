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

/// A combined view of recorded gates of several kernels, packages and devices, and the changes between two of
/// them.
namespace samestate {

/// Failures that are one fault for a reader, grouped as in a gate's summary (failure_groups.h).
struct BoardDefect {
  std::string what;                ///< "form chunked, law reset: CAUSE (only with l2norm=1)"
  std::string reason;              ///< the reason of the first failure
  std::vector<std::string> lines;  ///< the case lines, the smallest case first
};

/// One kernel in one version on one device under one contract.
struct BoardRow {
  std::string kernel;
  /// The versions of the packages that it was imported with, "fla 0.6.0, torch 2.11.0", followed by the hash
  /// of a kernel's own file, "mine.py e961848c"; for a kernel of this repository, samestate's version.
  std::string versions;
  std::string device;  ///< cpu, or the accelerator's name
  std::string contract;
  std::string date;  ///< the date of the newest run, for example 2026-11-29; empty if its file has none
  std::int64_t cases = 0, passed = 0, failed = 0, vacuous = 0, unsupported = 0;
  std::int64_t planned = 0;  ///< cases in the runs' plans; 0 if not recorded
  /// Error over bound: the median over the cases that passed, and the worst of those and of the failures,
  /// where a failure without numbers counts as infinite. NaN if there is none.
  double median = std::numeric_limits<double>::quiet_NaN();
  double worst = std::numeric_limits<double>::quiet_NaN();
  std::string worst_line;
  std::int64_t order = 0;   ///< rank of its newest run among those of the board, by date
  bool newest = true;       ///< no other row for this kernel, device and contract comes from a later run
  std::int64_t beyond = 0;  ///< for a nearest card: passes beyond the twin's limit
  std::vector<BoardDefect> defects;
  std::string driver = {}, toolkit = {};  ///< those of the newest run on a device
  std::string sources =
      {};  ///< for a kernel of this repository on a device: the hash of the sources that ran (evidence.h)
  std::set<std::string> passing = {};  ///< lines that passed; not stored in a board's data file

  [[nodiscard]] bool nearest() const { return contract.find("card:nearest") != std::string::npos; }
};

struct Board {
  std::vector<BoardRow> rows;      ///< ordered by kernel, versions, device and contract
  std::vector<std::string> notes;  ///< files without a case, runs that ended early
  std::int64_t incomplete = 0;     ///< files that the notes are about
  /// For each case, kernel and device the last timing that `samestate bench` recorded.
  std::vector<TimedEvidence> timings = {};
};

/// A difference that is worth reporting.
struct BoardChange {
  std::string kernel, device, contract;
  std::string text;    ///< "version fla 0.5.1 is now 0.6.0"
  bool worse = false;  ///< a new failure, or a ratio that grew
};

/// The board of the *.jsonl files and the digests (digest.h) in folders, or of digests given by name. If
/// several runs have a case line, the record of the newest run counts; if a digest has a row too, the newer
/// row; for a kernel of this repository on a device, rows from sources older than those that ran last are
/// left out. A case that was started and never ended becomes a note. `check` is called with each record and
/// throws Error for an impossible one. Throws Error for a file that is not a record of runs, and if nothing
/// contains a case.
[[nodiscard]] Board read_board(std::span<const std::filesystem::path> folders,
                               const std::function<void(const Record&)>& check = {});
[[nodiscard]] inline Board read_board(const std::filesystem::path& folder,
                                      const std::function<void(const Record&)>& check = {}) {
  return read_board(std::span(&folder, 1), check);
}

/// Sets BoardRow::newest of all rows.
void mark_newest(Board& board);

/// The differences in `after`, the worst first: new or missing kernels, devices and contracts; versions;
/// failures that are new, gone or no longer run; counts of verdicts; a worst ratio that has doubled; a card.
[[nodiscard]] std::vector<BoardChange> board_changes(const Board& before, const Board& after);

}  // namespace samestate
