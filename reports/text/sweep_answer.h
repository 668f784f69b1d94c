#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/records/measurement.h"

namespace samestate {

/// Returns a sentence about each curve of a sweep over one key: "at T=65536, bf16: chunk=16, 64, 256 pass; ...". `key` is
/// the key that was varied, and `values` are those that it was given: a point whose line leaves the key out has the one at
/// its place, since words are drawn at 1, 2, .. (measure/sweep). Each sentence has the RMS error relative to the output's
/// at each value, in the order of the values; for chunks, it also says up to which chunk a larger one costs no accuracy
/// (kFlatFactor), and with which one operations are fewest.
[[nodiscard]] std::vector<std::string> sweep_answers(std::span<const Measurement> points,
                                                     const std::string& key,
                                                     const std::vector<std::string>& values = {});

}  // namespace samestate
