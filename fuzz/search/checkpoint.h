#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/records/line_file.h"

namespace samestate {

/// The content of a checkpoint for one finished case.
struct CheckpointEntry {
  std::int64_t index = 0;
  double elapsed = 0.0;  ///< seconds of search when it finished
  CaseResult finding;
};

/// The content of the first line of a checkpoint, which identifies its search.
struct CheckpointTitle {
  std::string build;
  std::uint64_t seed = 0;
  std::int64_t shard = 0, shards = 1;
  std::string kernels;  ///< CaseSource::fingerprint

  [[nodiscard]] std::string text() const;
};

/// True if the file exists. A file whose first line is incomplete because the process was killed is removed:
/// it contains no case.
[[nodiscard]] bool is_begun_checkpoint(const std::filesystem::path& path);

/// The seed of the search in a checkpoint. Throws Error if the file is not a checkpoint.
[[nodiscard]] std::uint64_t checkpoint_seed(const std::filesystem::path& path);

/// The finished cases of a search, one line each (line_file.h): whenever the process is killed, all lines
/// except perhaps the last are complete. The first line identifies the search.
class Checkpoint {
 public:
  /// Starts a new file for the search `title` (one line). Throws Error if the file exists or cannot be
  /// created.
  Checkpoint(const std::filesystem::path& path, const std::string& title);
  /// Continues an existing file: fills `entries` with its content and removes an incomplete last line. Throws
  /// Error and changes nothing if the file cannot be read, belongs to another search or version, contains a
  /// damaged line (given by number), or is in use.
  Checkpoint(const std::filesystem::path& path, const std::string& title,
             std::vector<CheckpointEntry>& entries);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// Throws Error if the line was not written to the file.
  void append(const CheckpointEntry& entry);

 private:
  void lock();

  std::filesystem::path path_;
  LineFile file_;
};

/// Joins the checkpoints of all shards of one search into one for the whole search, which `fuzz --resume` can
/// continue. An incomplete last line is left out. Throws Error that names file, shard, value and remedy, and
/// leaves `out` unchanged, for a file that is not a checkpoint of this version, for one of another search, a
/// shard that is missing or present twice, a damaged line, and a case that is not in its shard or is present
/// twice. Returns the number of cases.
std::int64_t merge_checkpoints(std::span<const std::filesystem::path> files,
                               const std::filesystem::path& out);

/// True if the file starts like a checkpoint.
[[nodiscard]] bool is_checkpoint(const std::filesystem::path& path);

}  // namespace samestate
