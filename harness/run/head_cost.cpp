#include "harness/run/head_cost.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "harness/run/judging_cost.h"

namespace samestate {
namespace {

/// Returns the chunk of the case's calls; 0 for the recurrent form.
Index chunk_of(const Case& c) {
  constexpr std::string_view kRecurrent = "recurrent", kParallel = "parallel";
  if (c.form == kParallel) return c.T;
  return c.form == kRecurrent ? 0 : c.chunk;
}

}  // namespace

HeadCost cost_of_head(const Case& c, const Family& family, Index T) {
  // The cost is a constant per head and sequence and per chunk, plus each token of the recurrent form or each
  // chunk of the other, the state and its covariance, and for an inverse the cube of its chunk.
  const Index chunk = chunk_of(c);
  const bool heads = c.cuts == kCutHeads || c.form == "head_parallel";
  const double covariance = static_cast<double>((c.dk + 8) * (c.dk + c.dv + 16));
  const auto tokens = static_cast<double>(T);
  HeadCost cost{
      kEmptyHeadCost,
      kPlainHeadCost + tokens * (kPlainTokenCost + kPlainStateCost * static_cast<double>(c.dk * c.dv))};
  if (T == 0) return cost;
  if (chunk == 0) {
    cost.held = kHeadCost + kTokenStateCost * tokens * covariance;
    return cost;
  }
  const auto size = static_cast<double>(std::min(chunk, T));
  const double chunks = std::ceil(tokens / size);
  cost.held = kHeadCost +
              chunks * (kChunkCost + kChunkMatrixCost * size * size + kChunkStateCost * covariance) +
              kTokenOfChunkCost * tokens * covariance;
  if (family.delta) cost.held += chunks * kChunkInverseCost * size * size * size;
  if (c.ranks > 1 && !heads) cost.held *= kRanksFactor;
  return cost;
}

HeadCost mean_cost_of_head(const Case& c, const Family& family) {
  if (c.lengths.empty()) return cost_of_head(c, family, c.T);
  // In a batch of two thousand sequences most have the same length, and neighbours often do.
  HeadCost mean, one;
  Index last = -1;
  for (const Index length : c.lengths) {
    if (length != last) one = cost_of_head(c, family, length);
    last = length;
    mean.held += one.held;
    mean.plain += one.plain;
  }
  const auto sequences = static_cast<double>(c.lengths.size());
  return {mean.held / sequences, mean.plain / sequences};
}

Index heads_to_hold(const HeadCost& cost, const JudgePolicy& policy) {
  return static_cast<Index>(std::clamp(policy.held_microseconds / cost.held,
                                       static_cast<double>(policy.fewest_heads),
                                       static_cast<double>(policy.held_heads)));
}

double share_in_float64(const HeadCost& cost, Index heads, const JudgePolicy& policy) {
  return std::min(
      1.0, policy.float64_microseconds / (cost.plain * static_cast<double>(std::max<Index>(heads, 1))));
}

}  // namespace samestate
