#pragma once

#include <string>

#include "oracles/verdict.h"

namespace samestate {

/// One case on one kernel: a line of the JSON Lines record.
struct Record {
  std::string line;    ///< the canonical case line; `samestate repro '<line>'` repeats it
  std::string kernel;  ///< name in the table of kernels
  std::string system;
  std::string form;
  std::string contract;
  std::string regime;
  std::string law;     ///< empty: against the oracle
  std::string device;  ///< cpu, cuda or elsewhere; which GPU it was stands in the run
  Judgement judgement;
  double seconds = 0.0;
  std::string options = {};     ///< of the command that the line needs: " --plugin mine.so", else empty
  std::string looks_like = {};  ///< of a failure that was explained: the fault that it looks like
};

}  // namespace samestate
