#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/records/line_file.h"

namespace samestate {

/// What a checkpoint holds of one finished case.
struct CheckpointEntry {
  std::int64_t index = 0;
  double elapsed = 0.0;  ///< seconds of search when it finished
  CaseResult finding;
};

/// What stands in the first line of a checkpoint: which search it is of.
struct CheckpointTitle {
  std::string build;
  std::uint64_t seed = 0;
  std::int64_t shard = 0, shards = 1;
  std::string kernels;  ///< CaseSource::fingerprint

  [[nodiscard]] std::string text() const;
};

/// Whether a file is there. One that a kill left before its first line was whole is removed: it holds no case.
[[nodiscard]] bool is_begun_checkpoint(const std::filesystem::path& path);

/// The seed of the search that a checkpoint holds. Throws Error where it is none.
[[nodiscard]] std::uint64_t checkpoint_seed(const std::filesystem::path& path);

/// The finished cases of a search, one line each (line_file.h): whenever the process is killed, all lines but perhaps the
/// last are whole. The first line says which search it is.
class Checkpoint {
 public:
  /// Begins a new file for the search `title` (one line). Throws Error where the file exists or cannot be
  /// made.
  Checkpoint(const std::filesystem::path& path, const std::string& title);
  /// Goes on with an existing file: fills `entries` with what it holds and cuts off a last line that was not
  /// finished. Throws Error, with nothing changed, where the file cannot be read, is of another search or
  /// version, holds a damaged line (by number), or is in use.
  Checkpoint(const std::filesystem::path& path, const std::string& title,
             std::vector<CheckpointEntry>& entries);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// Throws Error where the line did not reach the file.
  void append(const CheckpointEntry& entry);

 private:
  void lock();

  std::filesystem::path path_;
  LineFile file_;
};

/// Joins the checkpoints of all shards of one search into one of the whole, which `fuzz --resume` goes on with. A last
/// line that was not finished is left out. Throws Error, with `out` as it was, that names file, shard, value and remedy
/// for a file that is no checkpoint of this version, of another search, a shard that is missing or there twice, a damaged
/// line, and a case that is not of its shard or stands twice. Returns how many cases it holds.
std::int64_t merge_checkpoints(std::span<const std::filesystem::path> files,
                               const std::filesystem::path& out);

/// Whether the file begins as a checkpoint does.
[[nodiscard]] bool is_checkpoint(const std::filesystem::path& path);

}  // namespace samestate
