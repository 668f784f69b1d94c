#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace samestate {

/// Which part of a whole a run is, so that parts that belong together are recognised
/// (reports/records/merge_runs.h).
struct RunPart {
  std::string verb;                    ///< gate, fuzz or sweep; empty in older files
  std::int64_t shard = 0, shards = 1;  ///< this shard out of `shards`; 0 of 1 is the whole
  std::int64_t cases = 0;              ///< cases of this shard
  std::int64_t total = 0;              ///< cases of all shards; 0 for a search without an end of its own
  std::string plan;                    ///< plan_hash of them; for a search, what its cases are drawn from
  std::map<std::string, std::string> options;  ///< options that determine cases and verdict, as typed,
                                               ///< including defaults
};

/// The origin of a set of records, shown once at the head of every report. Empty fields are not shown.
struct Run {
  std::string version;  ///< version of samestate
  std::string commit;   ///< commit of the kernels' repository, if the caller knows it
  std::string device;   ///< cpu, or the accelerator's name
  std::string driver;   ///< driver of the accelerator
  std::string toolkit;  ///< toolkit that built its kernels
  /// Hashes of its kernels' sources, in the format of sources_of (evidence.h): evidence is fresh while they
  /// equal those of the build.
  std::string kernel_sources;
  std::string plugins = {};  ///< files of other kernels, each with a hash of its bytes
  std::int64_t planned = 0;  ///< number of cases to run; 0 if unknown in advance
  RunPart part = {};
  /// The GPUs that share its cases, as "0: NVIDIA H100 80GB HBM3, GPU-8f6d.., 0000:1b:00.0": the number is
  /// the one for --devices, and a record names its GPU by the UUID. With several hosts, those of the one that
  /// started.
  std::vector<std::string> gpus = {};
  std::string date = {};  ///< the day on which it started, in UTC, as 2026-11-29; if empty, the writer's
};

/// A passing record that counts as failed, because its ratio grew beyond what a baseline allows.
struct Grown {
  std::int64_t number = 0;  ///< number of the case in its run
  double before = 0.0;      ///< the ratio in the baseline
};

/// How a run ended, as far as its records do not show it.
struct RunEnd {
  double seconds = 0.0;
  std::string seed;
  int exit = 0;                           ///< exit code of the command
  std::string not_complete = {};          ///< why not all planned cases were run; empty if they were
  std::vector<std::string> remarks = {};  ///< why the run is not a pass, although no case says so
  // The members below are needed to merge the parts of a run.
  bool finished = false;     ///< it was read from a file that contains it
  bool interrupted = false;  ///< a user interrupted it, or a file could not be written
  std::map<std::string, std::int64_t> not_started{};  ///< cases by kernel
  std::map<std::string, std::int64_t> kinds{};  ///< for a search: kinds of failures by verdict, once shrunk
  std::map<std::string, std::string> looks_like{};  ///< Record::looks_like by number of the case
  std::vector<Grown> grown{};                       ///< beyond the baseline
  std::int64_t compared = 0;                        ///< cases compared with the baseline
  std::vector<std::string> notes{};                 ///< about the plan: what was left out of it
  /// Declared limits of each kernel that refused a call before it launched anything, as one text. Which of
  /// its calls count as refused is decided over all shards together.
  std::map<std::string, std::string> limits{};
  std::int64_t left_out = 0;  ///< cases of the whole plan outside limits that kernels have and do not declare
  std::vector<std::string> lacking{};  ///< one sentence about each of those kernels
};

}  // namespace samestate
