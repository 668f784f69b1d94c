#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/records/record.h"

/// One point of a sweep, as plain data for reports: a kernel's error on one case, and its bound.
namespace samestate {

/// Root mean squares over one part of a run.
struct ErrorAt {
  double position = 0.0;  ///< token, position in the chunk, or head
  double error = 0.0;     ///< RMS over the elements there
  double bound = 0.0;     ///< predicted RMS; NaN if there is none
};

struct Measurement {
  std::string series;  ///< what is varied: chunk, length, decay, condition, width, drift
  std::string curve;   ///< what is constant along a line of the plot
  double x = 0.0;      ///< the quantity that is varied
  Record record;       ///< the case and its judgement
  std::int64_t tokens = 0;
  double size = 0.0;         ///< RMS of the expected output
  double max_error = 0.0;    ///< over the elements of the output
  double rms_error = 0.0;    ///< the same, RMS
  double rms_bound = 0.0;    ///< predicted RMS error; infinite if the bound is vacuous
  double state_size = 0.0;   ///< RMS of the expected final state
  double state_max = 0.0;    ///< largest error of the final state
  double state_rms = 0.0;    ///< its RMS
  double state_bound = 0.0;  ///< tolerance on the RMS error of the final state
  double flops = 0.0;        ///< per token and head, from the cost model; NaN if it has no value
  double bytes = 0.0;        ///< the same
  double condition = 0.0;  ///< for the worst triangular system I + A of the first head; NaN if there is none
  std::vector<ErrorAt> by_token;
  std::vector<ErrorAt> by_chunk_position;  ///< over all chunks; empty if there are none
  std::vector<ErrorAt> by_head;
};

}  // namespace samestate
