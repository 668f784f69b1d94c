#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reports/records/json_lines.h"

namespace samestate::cli {

/// The run file of a verb. If a line cannot be written (a full disk, a lost file system), the file ends there
/// and the verb is told, which then starts no further case and reports what it has; the lines before are
/// complete.
class RunLines {
 public:
  /// Without a file: every call does nothing.
  RunLines() = default;
  /// Throws Error if the file cannot be created.
  RunLines(const std::string& path, const Run& run,
           JsonLinesWriter::Mode mode = JsonLinesWriter::Mode::replace);

  void start(const Record& planned, std::int64_t number);
  void end(std::int64_t number, const Record& record);
  void point(const Measurement& measurement, std::int64_t number);
  void finish(const RunEnd& end);

  /// Why it cannot be written; empty if it can.
  [[nodiscard]] const std::string& lost() const { return lost_; }

 private:
  template <class Write>
  void attempt(Write&& write);

  std::unique_ptr<JsonLinesWriter> lines_;
  std::string lost_;
};

}  // namespace samestate::cli
