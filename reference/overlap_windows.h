#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/sequence.h"

/// The split of a head's channels into overlapping windows (DEND-25..27, DEND-39; EQUATIONS 7.5): window n
/// holds the channels [n s, n s + w), neighbours share O = w - s of them, and the last one ends at d.
namespace samestate {

/// A valid split; made by overlap_windows().
struct OverlapWindows {
  Index channels = 1;  ///< d
  Index count = 1;     ///< N
  Index overlap = 0;   ///< O
  Index width = 1;     ///< w = s + O
  Index stride = 1;    ///< s = (d - O) / N

  /// The first channel of window n.
  [[nodiscard]] Index begin(Index n) const { return n * stride; }

  /// m(c), the number of windows that hold channel c: min(N-1, floor(c/s)) - max(0, ceil((c-w+1)/s)) + 1.
  /// They sum to N w.
  [[nodiscard]] Index multiplicity(Index c) const {
    const Index last = std::min(count - 1, c / stride);
    const Index first = c < width ? 0 : (c - width) / stride + 1;
    return last - first + 1;
  }

  /// The channels of window n. x: [T, d] -> [T, w]. Throws Error for another width or an unknown window.
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> slice(const Matrix<Scalar>& x, Index n) const {
    if (x.cols() != channels || n < 0 || n >= count) {
      throw Error("overlap_windows: window " + std::to_string(n) + " of " + std::to_string(x.cols()) +
                  " channels; the split has " + std::to_string(count) + " windows of " +
                  std::to_string(channels) + " channels");
    }
    return x.middleCols(begin(n), width);
  }

  /// The sum of the windows, each at its place: channel c comes back m(c) times (P-12). parts: N of [T, w] ->
  /// [T, d]. Throws Error if the parts do not belong to this split.
  template <class Scalar>
  [[nodiscard]] Matrix<Scalar> overlap_add(const std::vector<Matrix<Scalar>>& parts) const {
    if (static_cast<Index>(parts.size()) != count) {
      throw Error("overlap_add: " + std::to_string(parts.size()) + " windows, the split has " +
                  std::to_string(count));
    }
    Matrix<Scalar> sum = Matrix<Scalar>::Zero(parts.front().rows(), channels);
    for (Index n = 0; n < count; ++n) {
      const Matrix<Scalar>& part = parts[static_cast<std::size_t>(n)];
      if (part.cols() != width || part.rows() != sum.rows()) {
        throw Error("overlap_add: window " + std::to_string(n) + " is " + std::to_string(part.rows()) +
                    " x " + std::to_string(part.cols()) + ", must be " + std::to_string(sum.rows()) + " x " +
                    std::to_string(width));
      }
      sum.middleCols(begin(n), width) += part;
    }
    return sum;
  }
};

/// N windows of d channels that overlap by O. They cover d exactly if and only if N divides d - O; anything
/// else is refused and never rounded down: d = 256, N = 3, O = 65 would give windows that miss two channels.
/// One window is the identity, whatever the overlap. Throws Error if d < 1, N < 1, O is outside [0, d), or N
/// does not divide d - O.
[[nodiscard]] inline OverlapWindows overlap_windows(Index channels, Index count, Index overlap) {
  const auto refuse = [&](const std::string& why) {
    throw Error("overlap_windows: " + std::to_string(count) + " windows of " + std::to_string(channels) +
                " channels with overlap " + std::to_string(overlap) + ": " + why);
  };
  if (channels < 1 || count < 1) refuse("both must be at least 1");
  if (count == 1) return {channels, 1, 0, channels, channels};
  if (overlap < 0 || overlap >= channels) {
    refuse("the overlap must lie in 0.." + std::to_string(channels - 1));
  }
  if ((channels - overlap) % count != 0) {
    refuse("the number of windows must divide channels - overlap = " + std::to_string(channels - overlap));
  }
  const Index stride = (channels - overlap) / count;
  return {channels, count, overlap, stride + overlap, stride};
}

}  // namespace samestate
