#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace samestate {

/// Which part of which whole a run is, so that parts that belong together are known (reports/records/merge_runs.h).
struct RunPart {
  std::string verb;                    ///< gate, fuzz or sweep; empty: a file of before
  std::int64_t shard = 0, shards = 1;  ///< this one of so many; 0 of 1 is the whole
  std::int64_t cases = 0;              ///< of this shard
  std::int64_t total = 0;              ///< cases of all shards; 0: a search without an end of its own
  std::string plan;                    ///< plan_hash of them; of a search what its cases are drawn from
  std::map<std::string, std::string> options;  ///< that decide cases and verdict, as typed; defaults too
};

/// What made a set of records: stands once at the head of every report. Empty fields are not shown.
struct Run {
  std::string version;  ///< of samestate
  std::string commit;   ///< of the kernels' repository, where the caller knows it
  std::string device;   ///< cpu, or the accelerator's name
  std::string driver;   ///< of the accelerator
  std::string toolkit;  ///< that built its kernels
  /// Hashes of its kernels' sources, as sources_of reads them (evidence.h): evidence is fresh while they are the build's.
  std::string kernel_sources;
  std::string plugins = {};  ///< files of other kernels, each with a hash of its bytes
  std::int64_t planned = 0;  ///< cases that are to be run; 0 where nobody knows before
  RunPart part = {};
  /// The GPUs that share its cases, as "0: NVIDIA H100 80GB HBM3, GPU-8f6d.., 0000:1b:00.0": the number is that of
  /// --devices, and a record names its own by the UUID. Of several hosts, those of the one that began.
  std::vector<std::string> gpus = {};
  std::string date = {};  ///< on which it began, in UTC, as 2026-11-29; the writer's where it is empty
};

/// A passing record that counts as failed, since its ratio grew beyond what a baseline allows.
struct Grown {
  std::int64_t number = 0;  ///< of the case in its run
  double before = 0.0;      ///< the ratio in the baseline
};

/// How a run ended: what its records alone do not say.
struct RunEnd {
  double seconds = 0.0;
  std::string seed;
  int exit = 0;                           ///< of the command
  std::string not_complete = {};          ///< why not all planned cases were run; empty: they were
  std::vector<std::string> remarks = {};  ///< why the run is no pass, though none of its cases says so
  // Below: what a merge of the parts of a run must know.
  bool finished = false;                              ///< read from a file that has such an end
  bool interrupted = false;                           ///< by a person, or by a file that could not be written
  std::map<std::string, std::int64_t> not_started{};  ///< cases by kernel
  std::map<std::string, std::int64_t> kinds{};  ///< of a search: kinds of failures by their verdict, shrunk
  std::map<std::string, std::string> looks_like{};  ///< Record::looks_like by number of the case
  std::vector<Grown> grown{};                       ///< beyond the baseline
  std::int64_t compared = 0;                        ///< with the baseline
  std::vector<std::string> notes{};                 ///< about the plan: what was left out of it
  /// Declared limits of each kernel that refused a call before it launched anything, as one text: which calls of such a
  /// kernel count as refused is decided of all shards together.
  std::map<std::string, std::string> limits{};
  std::int64_t left_out = 0;  ///< cases of the whole plan outside limits that kernels keep and do not declare
  std::vector<std::string> lacking{};  ///< a sentence about each of those kernels
};

}  // namespace samestate
