#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/records/measurement.h"

namespace samestate {

/// What a sweep over one key says of each of its curves, a sentence each: "at T=65536, bf16: chunk=16, 64, 256 pass; ...".
/// `key` is what was varied. Each curve has the RMS error of the output over the output's at each value, in the order of
/// the values, and of chunks up to which a larger one costs no accuracy (kFlatFactor) and where operations are least.
[[nodiscard]] std::vector<std::string> sweep_answers(std::span<const Measurement> points,
                                                     const std::string& key);

}  // namespace samestate
