#pragma once

#include <string>

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
};

}  // namespace samestate
