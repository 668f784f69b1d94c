#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/records/case_result.h"

namespace samestate {

/// What a checkpoint holds of one finished case.
struct CheckpointEntry {
  std::int64_t index = 0;
  double elapsed = 0.0;  ///< seconds of search when it finished
  CaseResult finding;
};

/// The seed of the search that a checkpoint holds. Throws Error where it is none.
[[nodiscard]] std::uint64_t checkpoint_seed(const std::filesystem::path& path);

/// The finished cases of a search, one line each, appended with one write: whenever the process is killed,
/// all lines but perhaps the last are whole. The first line says which search it is.
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
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  /// Throws Error where the line did not reach the file.
  void append(const CheckpointEntry& entry);

 private:
  void write(const std::string& line);
  void lock();

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace samestate
