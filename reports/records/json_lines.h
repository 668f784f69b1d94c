#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/line_file.h"
#include "harness/records/measurement.h"
#include "harness/records/timing.h"
#include "reports/records/files.h"
#include "reports/records/run.h"

/// The record of a run, with one JSON object per line: the source from which the other reports are made
/// (HARNESS 3). There are six events:
///   run    starts each run in the file: version, commit, device, driver, toolkit, kernel_sources, planned, and which part
///          of which whole it is: verb, shard, total, plan, options
///   start  a case that is about to be judged; it is on disk before the kernel is called
///   end    the same with the judgement; for a failure also `command`, which repeats it
///   finish the last line of gate and fuzz: exit, seconds, seed, why not all cases were run, and why it is not a pass
///   point  a measured point of a sweep, with its judgement and, as `case`, its place in the plan
///   timing a case of a bench: times, lower bound, peer, and its judgement. Files without this event are read as before;
///          older readers refuse files that have it, because they do not know the event
/// Every line has `schema`; start and end have `case`, a number that is unique in its run: the place in the plan of all
/// shards. JSON has no NaN and no infinity, which are written as the strings "nan", "inf" and "-inf"; every other double
/// is read back bit for bit.
namespace samestate {

/// Format version of the lines; a reader accepts only this one.
inline constexpr int kJsonLinesSchema = 1;

/// Writes straight to the final name, line by line, so that the file survives a crash of the process; a line that cannot
/// be written leaves those before it whole (line_file.h). Threads may share one writer; two processes may not share one
/// file.
/// A call that samestate.capture recorded: its file in the folder, and the numbers that were measured.
struct RecordedCall {
  std::string file;
  std::map<std::string, double> numbers;  ///< CapturedJudgement::numbers
};

class JsonLinesWriter {
 public:
  /// resume: continues the run at the end of the file, and repeats no line that it has
  /// (reports/records/resume_run.h).
  enum class Mode { replace, append, resume };

  /// Opens `path` (missing folders are created) and writes the `run` line. Throws Error if that fails.
  JsonLinesWriter(const std::filesystem::path& path, const Run& run, Mode mode = Mode::replace);

  /// Called before the kernel is; judgement and seconds of `planned` are not read. `number` is the place of
  /// the case in its plan; below 0 means the next one. Returns the number for `end`. Throws Error if the line
  /// was not written to the file.
  std::int64_t start(const Record& planned, std::int64_t number = -1);

  /// A measured point of a sweep; `number` is its place in the plan, or below 0 if unknown. Throws Error if
  /// the line was not written to the file.
  void point(const Measurement& measurement, std::int64_t number = -1);

  /// A timed case of a bench. Throws Error if the line was not written to the file.
  void timing(const TimedCase& timed);

  /// Called after the case was judged. Throws Error if the line was not written to the file.
  void end(std::int64_t number, const Record& record);
  /// The same for a recorded call, which no case line repeats.
  void end(std::int64_t number, const Record& record, const RecordedCall& call);

  /// The last line of a run of the gate. Throws Error if it was not written to the file, or if the file is
  /// not what was written.
  void finish(const RunEnd& end);

 private:
  void write(const std::string& line);

  FileLock lock_;
  LineFile file_;
  std::mutex mutex_;
  std::int64_t next_ = 0;
};

/// A point as text and its bit-exact inverse, for passing it from the process that measures to the one that
/// writes. Throws Error for invalid text.
[[nodiscard]] std::string point_text(const Measurement& measurement);
[[nodiscard]] Measurement parse_point(std::string_view text);

/// A timing and the run that took it.
struct RecordedTiming {
  TimedCase timed;
  std::size_t run = 0;  ///< index of RecordFile::runs
};

/// Where a record or a point was found.
struct RecordPlace {
  std::size_t run = 0;       ///< index of RecordFile::runs
  std::int64_t number = -1;  ///< number of the case in its run; -1 for a point without one
  bool ended = true;         ///< false if it was started and nothing more is known
};

/// The content of a file of records.
struct RecordFile {
  std::vector<Run> runs;
  std::vector<RunEnd> ends;         ///< one for each run; for a run that was killed, it says so
  std::vector<Record> records;      ///< in order of their end; then, for each run, the cases that never ended
  std::vector<RecordPlace> places;  ///< the places of the records
  std::vector<Measurement> points;  ///< the points of sweeps, in order
  std::vector<RecordPlace> point_places;
  std::vector<RecordedTiming> timings;  ///< the timings of benches, in order
  std::int64_t cut_lines = 0;           ///< lines that a crash left incomplete
};

/// Reads a file that JsonLinesWriter made, complete or cut off anywhere. A start without an end becomes a
/// record with the verdict `crash`. Throws Error with file and line number for a file that cannot be read,
/// another format version, a missing field or one of the wrong type, or a damaged line that is not the last
/// of its run.
[[nodiscard]] RecordFile read_json_lines(const std::filesystem::path& path);

/// Why runs of the file are incomplete or cover too little, one sentence each; empty if none says so.
[[nodiscard]] std::vector<std::string> shortcomings(const RecordFile& file);

}  // namespace samestate
