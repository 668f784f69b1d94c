#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace samestate {

/// What made a set of records: stands once at the head of every report. Empty fields are not shown.
struct Run {
  std::string version;  ///< of samestate
  std::string commit;   ///< of the kernels' repository, where the caller knows it
  std::string device;   ///< cpu, or the accelerator's name
  std::string driver;   ///< of the accelerator
  std::string toolkit;  ///< that built its kernels
  std::string
      kernel_sources;  ///< hashes of their sources (evidence.h): evidence is fresh while they are the build's
  std::string plugins = {};  ///< files of other kernels, each with a hash of its bytes
  std::int64_t planned = 0;  ///< cases that are to be run; 0 where nobody knows before
};

/// How a run of the gate ended: what its records alone do not say.
struct RunEnd {
  double seconds = 0.0;
  std::string seed;
  int exit = 0;                           ///< of the command
  std::string not_complete = {};          ///< why not all planned cases were run; empty: they were
  std::vector<std::string> remarks = {};  ///< why the run is no pass, though none of its cases says so
};

}  // namespace samestate
