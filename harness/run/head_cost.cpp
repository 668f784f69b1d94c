#include "harness/run/head_cost.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "harness/run/chosen_heads.h"

namespace samestate {
namespace {

constexpr double kMicrosecondsHeld = 120e3;
constexpr double kMicrosecondsPlain = 120e3;
constexpr Index kFewestHeads = 2;

/// The chunk that the case's calls have; 0 for the recurrent form.
Index chunk_of(const Case& c) {
  constexpr std::string_view kRecurrent = "recurrent", kParallel = "parallel";
  if (c.form == kParallel) return c.T;
  return c.form == kRecurrent ? 0 : c.chunk;
}

}  // namespace

HeadCost cost_of_head(const Case& c, const Family& family, Index T) {
  // A head of a sequence and a chunk of it take their time however small they are; each token of the recurrent form, each
  // chunk of the other, the state and the state's covariance; an inverse the cube of its chunk.
  constexpr double kHead = 6.6, kEmptyHead = 1.3, kChunk = 3.9, kInverse = 0.95e-3, kMatrix = 28e-3;
  constexpr double kTokenState = 3.9e-3, kChunkState = 6.8e-3, kTokenOfChunk = 2.4e-3;
  constexpr double kPlainHead = 2.0, kPlainToken = 0.1, kPlainState = 1.2e-3;
  constexpr double kRanks = 2.5;  // the maps' bound beside that of the outputs
  const Index chunk = chunk_of(c);
  const bool heads = c.cuts == kCutHeads || c.form == "head_parallel";
  const double covariance = static_cast<double>((c.dk + 8) * (c.dk + c.dv + 16));
  const auto tokens = static_cast<double>(T);
  HeadCost cost{kEmptyHead,
                kPlainHead + tokens * (kPlainToken + kPlainState * static_cast<double>(c.dk * c.dv))};
  if (T == 0) return cost;
  if (chunk == 0) {
    cost.held = kHead + kTokenState * tokens * covariance;
    return cost;
  }
  const auto size = static_cast<double>(std::min(chunk, T));
  const double chunks = std::ceil(tokens / size);
  cost.held = kHead + chunks * (kChunk + kMatrix * size * size + kChunkState * covariance) +
              kTokenOfChunk * tokens * covariance;
  if (family.delta) cost.held += chunks * kInverse * size * size * size;
  if (c.ranks > 1 && !heads) cost.held *= kRanks;
  return cost;
}

HeadCost mean_cost_of_head(const Case& c, const Family& family) {
  if (c.lengths.empty()) return cost_of_head(c, family, c.T);
  HeadCost mean;
  for (const Index length : c.lengths) {
    const HeadCost one = cost_of_head(c, family, length);
    mean.held += one.held;
    mean.plain += one.plain;
  }
  const auto sequences = static_cast<double>(c.lengths.size());
  return {mean.held / sequences, mean.plain / sequences};
}

Index heads_to_hold(const HeadCost& cost) {
  return static_cast<Index>(std::clamp(kMicrosecondsHeld / cost.held, static_cast<double>(kFewestHeads),
                                       static_cast<double>(kChosenHeads)));
}

double share_in_float64(const HeadCost& cost, Index heads) {
  return std::min(1.0, kMicrosecondsPlain / (cost.plain * static_cast<double>(std::max<Index>(heads, 1))));
}

}  // namespace samestate
