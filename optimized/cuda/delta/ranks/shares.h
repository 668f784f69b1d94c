#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/cuda/delta/ranks/compose.cuh"
#include "optimized/ranks.h"

/// Which tokens of a call over ranks each device of a host holds. This is host code that needs no device.
namespace samestate::cuda::ranks {

/// Tokens of one sequence on one rank, and where they start among the rows of the call's tensors.
struct Held {
  calls::Part part;
  std::int64_t row = 0;
};

/// The parts of a device's ranks, as packed sequences.
struct Share {
  std::vector<Held> parts;               ///< the parts that pass their state on come first
  std::int64_t passing = 0;              ///< the number of those
  std::vector<std::int64_t> offsets{0};  ///< [parts + 1]: start of each part among the device's tokens
  std::vector<Chain> chains;             ///< one for each sequence that has parts here
  std::vector<std::int64_t> sequences;   ///< the sequence of each chain
  std::vector<std::int64_t> order;       ///< the order of the chains
  std::vector<bool> begins;  ///< the chain starts with the sequence, and so from its initial state

  [[nodiscard]] std::int64_t tokens() const { return offsets.back(); }
  /// The longest of the first `count` parts.
  [[nodiscard]] std::int64_t longest(std::int64_t count) const {
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < count; ++i)
      most = std::max(most, offsets[static_cast<std::size_t>(i) + 1] - offsets[static_cast<std::size_t>(i)]);
    return most;
  }
};

/// The state of a sequence passes from one device to the next that holds tokens of it; the chains on both.
struct Handover {
  std::size_t from = 0, to = 0;
  std::int64_t sent = 0, received = 0;
};

struct Division {
  std::vector<Share> shares;        ///< one per device
  std::vector<Handover> handovers;  ///< ordered by `to`
};

/// Assigns ranks to `devices` in order, as evenly as possible.
[[nodiscard]] inline Division divide(const Arguments& a, const calls::Sizes& sizes,
                                     const std::vector<std::int64_t>& cuts, std::size_t devices) {
  const auto ranks = static_cast<std::int64_t>(cuts.size()) - 1;
  Division out{std::vector<Share>(devices), {}};
  struct Place {
    std::size_t device;
    Held held;
  };
  std::vector<std::vector<Place>> sequences(static_cast<std::size_t>(sizes.sequences));
  for (std::int64_t n = 0; n < sizes.sequences; ++n) {
    const std::int64_t first = a.cu_seqlens.present() ? a.cu_seqlens(n) : n * sizes.tokens;
    for (const calls::Part& part : calls::parts_of(a, sizes, cuts, n)) {
      const auto device = static_cast<std::size_t>(part.rank * static_cast<std::int64_t>(devices) / ranks);
      sequences[static_cast<std::size_t>(n)].push_back({device, {part, first + part.begin}});
    }
  }
  std::vector<std::vector<std::int64_t>> numbers(sequences.size());
  for (std::size_t n = 0; n < sequences.size(); ++n) numbers[n].resize(sequences[n].size());
  for (const bool passes_on : {true, false}) {
    for (std::size_t n = 0; n < sequences.size(); ++n) {
      for (std::size_t i = 0; i < sequences[n].size(); ++i) {
        const auto& [device, held] = sequences[n][i];
        if (held.part.passes_on != passes_on) continue;
        Share& share = out.shares[device];
        numbers[n][i] = std::ssize(share.parts);
        share.parts.push_back(held);
        share.offsets.push_back(share.offsets.back() + held.part.end - held.part.begin);
        if (passes_on) ++share.passing;
      }
    }
  }
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    for (std::size_t i = 0; i < sequences[n].size(); ++i) {
      const std::size_t device = sequences[n][i].device;
      Share& share = out.shares[device];
      if (i == 0 || sequences[n][i - 1].device != device) {
        share.chains.push_back({std::ssize(share.order), 0});
        share.sequences.push_back(static_cast<std::int64_t>(n));
        share.begins.push_back(i == 0);
        if (i > 0) {
          const std::size_t before = sequences[n][i - 1].device;
          // On devices before this one, the chain of this sequence is the last one.
          out.handovers.push_back(
              {before, device, std::ssize(out.shares[before].chains) - 1, std::ssize(share.chains) - 1});
        }
      }
      share.order.push_back(numbers[n][i]);
      ++share.chains.back().count;
    }
  }
  std::stable_sort(out.handovers.begin(), out.handovers.end(),
                   [](const Handover& x, const Handover& y) { return x.to < y.to; });
  return out;
}

}  // namespace samestate::cuda::ranks
