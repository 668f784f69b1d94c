#include "reference/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/state_space_draw.h"
#include "reference/retention.h"
#include "reference/scalars.h"
#include "reference/selective_scan_parallel.h"

namespace samestate::selective_scan_identities {
namespace {

using namespace state_space;

template <class Output>
double difference(const Output& a, const Output& b) {
  return std::max(relative_difference(a.out, b.out), relative_difference(a.state, b.state));
}

template <class Scalar>
double difference(const StateSpaceOutput<Scalar>& a, const StateSpaceOutput<Scalar>& b) {
  return std::max(relative_difference(a.y, b.y), relative_difference(a.state, b.state));
}

// --- EQ-17: the scans -----------------------------------------------------------------------------------

/// The two halves of a step in which u and B are held.
template <class Scalar>
SelectiveScan<Scalar> halved(const SelectiveScan<Scalar>& x) {
  SelectiveScan<Scalar> half = x;
  const Index T = x.tokens();
  for (Matrix<Scalar>* m : {&half.u, &half.delta, &half.B, &half.C, &half.z}) {
    Matrix<Scalar> twice(2 * T, m->cols());
    for (Index t = 0; t < 2 * T; ++t) twice.row(t) = m->row(t / 2);
    *m = twice;
  }
  half.delta *= Scalar(0.5);
  return half;
}

template <class Scalar>
double halved_steps(std::uint64_t seed, Discretisation mode) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  const SelectiveScanOutput<Scalar> whole = selective_scan_recurrent(x, mode);
  const SelectiveScanOutput<Scalar> half = selective_scan_recurrent(halved(x), mode);
  Matrix<Scalar> out(x.tokens(), kChannels);
  for (Index t = 0; t < x.tokens(); ++t) out.row(t) = half.out.row(2 * t + 1);
  return std::max(relative_difference(out, whole.out), relative_difference(half.state, whole.state));
}

// --- EQ-08: the duality ---------------------------------------------------------------------------------

// --- Negative controls ----------------------------------------------------------------------------------

}  // namespace

std::vector<Identity> rows() {
  constexpr std::string_view kScan = "selective_scan";
  constexpr std::string_view kDual = "state_space_duality";
  constexpr Expectation equal = Expectation::equal;
  constexpr Expectation differs = Expectation::differs;
  std::vector<Identity> rows{
      {"EQ-17", "scan_hillis_steele", kScan, "sequential scan = Hillis-Steele, T = 13, Euler and hold", equal,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         return std::max(
             difference(selective_scan_hillis_steele(x, kEuler), selective_scan_recurrent(x, kEuler)),
             difference(selective_scan_hillis_steele(x, kHold), selective_scan_recurrent(x, kHold)));
       }},
      {"EQ-17", "scan_blelloch", kScan, "sequential scan = Blelloch, T = 0 .. 13, Euler and hold", equal,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         double worst = 0.0;
         for (const Discretisation mode : {kEuler, kHold}) {
           for (Index T = 0; T <= x.tokens(); ++T) {
             const SelectiveScan<Scalar> part = x.slice(0, T, x.initial_state);
             worst = std::max(worst, difference(selective_scan_blelloch(part, mode),
                                                selective_scan_recurrent(part, mode)));
           }
         }
         return worst;
       }},
      {"EQ-17", "scan_chunked", kScan, "sequential scan = chunks of 1, 4, 5, 64, Euler and hold", equal,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         double worst = 0.0;
         for (const Discretisation mode : {kEuler, kHold}) {
           for (const Index chunk : {1, 4, 5, 64}) {
             worst = std::max(worst, difference(selective_scan_chunked(x, mode, chunk),
                                                selective_scan_recurrent(x, mode)));
           }
         }
         return worst;
       }},
      // Resumed from the state, in another form, at every token.
      {"EQ-17", "scan_resumed", kScan, "one scan = sequential, then Blelloch from its state, cut anywhere",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         const SelectiveScanOutput<Scalar> whole = selective_scan_recurrent(x, kEuler);
         double worst = 0.0;
         for (Index cut = 0; cut <= x.tokens(); ++cut) {
           const auto first = selective_scan_recurrent(x.slice(0, cut, x.initial_state), kEuler);
           const auto rest = selective_scan_blelloch(x.slice(cut, x.tokens() - cut, first.state), kEuler);
           Matrix<Scalar> out(x.tokens(), kChannels);
           out << first.out, rest.out;
           worst = std::max(
               {worst, relative_difference(out, whole.out), relative_difference(rest.state, whole.state)});
         }
         return worst;
       }},
      {"EQ-17", "hold_composes", kScan,
       "zero-order hold: two half steps under a held input = one step (exact in time)", equal,
       []<class Scalar>(std::uint64_t seed) { return halved_steps<Scalar>(seed, kHold); }},
      {"EQ-17", "hold_without_decay", kScan, "A = 0: the hold's factor is its limit Delta, Euler's",
       Expectation::exact,
       []<class Scalar>(std::uint64_t seed) {
         SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         x.A.setZero();
         return difference(selective_scan_recurrent(x, kHold), selective_scan_recurrent(x, kEuler));
       }},
      // (Bbar_hold A + 1) against exp(Delta A): the same exponential through exp and through expm1, over the range
      // where the factor takes each of its branches.
      {"EQ-17", "hold_factor_and_decay", kScan, "Bbar A / B + 1 = exp(Delta A), Delta = 2^-50 .. 2^9", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         IdentityDraw<Scalar> draw(seed);
         Vector<Scalar> through_factor(60);
         Vector<Scalar> decay(60);
         for (Index i = 0; i < 60; ++i) {
           const Scalar A(-draw.uniform(0.1, 4.0));
           const Scalar delta(std::ldexp(draw.uniform(0.5, 1.0), static_cast<int>(i) - 50));
           through_factor(i) = input_factor(delta, A, kHold) * A + Scalar(1);
           decay(i) = exp(Scalar(delta * A));
         }
         return relative_difference(through_factor, decay);
       }},
      {"EQ-17", "hold_is_bounded", kScan, "0 <= Bbar / B <= min(Delta, -1/A) at any Delta (hazard 8.3)",
       Expectation::holds,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         Scalar worst(0);
         for (int i = -60; i < 60; ++i) {
           const Scalar A(-draw.uniform(0.1, 4.0));
           const Scalar delta(std::ldexp(draw.uniform(0.5, 1.0), i));
           const Scalar factor = input_factor(delta, A, kHold);
           if (!(factor >= Scalar(0))) return 1.0;
           const Scalar over_delta = factor / delta - Scalar(1);
           const Scalar over_rate = -(factor * A) - Scalar(1);
           if (worst < over_delta) worst = over_delta;
           if (worst < over_rate) worst = over_rate;
         }
         return static_cast<double>(worst);
       }},
      {"EQ-08", "state_space_is_retention", kDual,
       "Mamba-2 recurrence = C-GLA recurrence with q=C, k=B, v=Delta x", equal,
       []<class Scalar>(std::uint64_t seed) {
         const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         const Trajectory<Scalar> dual = recurrent<Retention>(as_retention(x));
         const StateSpaceOutput<Scalar> mine = state_space_recurrent(x);
         const Matrix<Scalar> y = dual.o + x.skip * x.x;
         const Matrix<Scalar> state = dual.state.transpose();
         return std::max(relative_difference(mine.y, y), relative_difference(mine.state, state));
       }},
      {"EQ-08", "state_space_quadratic", kDual,
       "Mamba-2 recurrence = quadratic dual (C B^T o L) Delta x, with an initial state", equal,
       []<class Scalar>(std::uint64_t seed) {
         const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         return difference(state_space_quadratic(x), state_space_recurrent(x));
       }},
      {"EQ-08", "state_space_dual_is_parallel_retention", kDual,
       "quadratic dual = parallel retention of RET-2", equal,
       []<class Scalar>(std::uint64_t seed) {
         StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         x.skip = Scalar(0);
         x.initial_state.setZero();
         return relative_difference(state_space_quadratic(x).y, retention_parallel(as_retention(x)));
       }},
      {"EQ-08", "state_space_chunked", kDual,
       "Mamba-2 recurrence = block decomposition, chunks of 1, 4, 5, 64", equal,
       []<class Scalar>(std::uint64_t seed) {
         const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         double worst = 0.0;
         for (const Index chunk : {1, 4, 5, 64}) {
           worst = std::max(worst, difference(state_space_chunked(x, chunk), state_space_recurrent(x)));
         }
         return worst;
       }},
      {"EQ-08", "retnet_is_state_space", kDual,
       "RetNet, powers of gamma = Mamba-2 with Delta = 1, A = log gamma", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         x.delta.setOnes();
         x.A = retention_log_decay<Scalar>(2);
         x.skip = Scalar(0);
         x.initial_state.setZero();
         const Matrix<Scalar> parallel = retention_parallel_constant(as_retention(x), Scalar(exp(x.A)));
         return relative_difference(state_space_recurrent(x).y, parallel);
       }},
      // A head is Mamba's scan with one rate and one time step for all its channels (Euler).
      {"EQ-08", "state_space_is_scan", kDual,
       "Mamba-2 head = Mamba-1 Euler scan with one rate and one step for all channels", equal,
       []<class Scalar>(std::uint64_t seed) {
         SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         const StateSpaceHead<Scalar> head = draw_head<Scalar>(seed);
         x.A.setConstant(head.A);
         x.skip.setConstant(head.skip);
         for (Index d = 0; d < kChannels; ++d) x.delta.col(d) = head.delta;
         const SelectiveScanOutput<Scalar> scan = selective_scan_recurrent(x, kEuler);
         return difference(state_space_recurrent(head), StateSpaceOutput<Scalar>{scan.y, scan.state});
       }},
      {"NC-hold-for-euler", "scan_hold_for_euler", kScan, "zero-order hold in place of Euler (E-13)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         return relative_difference(selective_scan_recurrent(x, kHold).y,
                                    selective_scan_recurrent(x, kEuler).y);
       }},
      {"NC-euler-half-steps", "scan_euler_half_steps", kScan, "Euler: two half steps are not one step",
       differs, []<class Scalar>(std::uint64_t seed) { return halved_steps<Scalar>(seed, kEuler); }},
      {"NC-skip-after-gate", "scan_skip_after_gate", kScan, "D u added after the gate, not before", differs,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         SelectiveScan<Scalar> bare = x;
         bare.skip.resize(0);
         const Matrix<Scalar> after = selective_scan_recurrent(bare, kEuler).out + x.u * x.skip.asDiagonal();
         return relative_difference(after, selective_scan_recurrent(x, kEuler).out);
       }},
      {"NC-scan-no-gate", "scan_without_gate", kScan, "no silu(z) (SSM-10 as printed)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScanOutput<Scalar> out = selective_scan_recurrent(draw_scan<Scalar>(seed), kEuler);
         return relative_difference(out.y, out.out);
       }},
      // SSM-9 as printed: h = A h + B u, with A = -exp(A_log) as the multiplier.
      {"NC-raw-rate", "scan_raw_rate", kScan, "A as the multiplier of the state (SSM-9 as printed)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         Matrix<Scalar> h = x.initial_state;
         for (Index t = 0; t < x.tokens(); ++t) {
           const Matrix<Scalar> write = x.u.row(t).transpose() * x.B.row(t);
           h = x.A.cwiseProduct(h) + write;
         }
         return relative_difference(h, selective_scan_recurrent(x, kEuler).state);
       }},
      {"NC-raw-input", "scan_raw_input", kScan, "B u written without Delta", differs,
       []<class Scalar>(std::uint64_t seed) {
         SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
         const SelectiveScanOutput<Scalar> right = selective_scan_recurrent(x, kEuler);
         x.u = x.u.cwiseQuotient(x.delta);  // cancels the Delta of Delta B u
         return relative_difference(selective_scan_recurrent(x, kEuler).state, right.state);
       }},
      {"NC-state-space-read-before-write", "state_space_read_before_write", kDual,
       "y reads the state before the own write", differs,
       []<class Scalar>(std::uint64_t seed) {
         const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         const StateSpaceOutput<Scalar> right = state_space_recurrent(x);
         const Vector<Scalar> own = x.delta.cwiseProduct(x.B.cwiseProduct(x.C).rowwise().sum());
         const Matrix<Scalar> early = right.y - own.asDiagonal() * x.x;
         return relative_difference(early, right.y);
       }},
      // The initial state taken as [N, P] where it is [P, N] of the same extents.
      {"NC-state-space-transposed", "state_space_transposed_state", kDual,
       "initial state [N, P] taken for [P, N]", differs,
       []<class Scalar>(std::uint64_t seed) {
         StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
         x.B = Matrix<Scalar>(x.B.leftCols(kChannels));
         x.C = Matrix<Scalar>(x.C.leftCols(kChannels));
         x.initial_state = Matrix<Scalar>(x.initial_state.leftCols(kChannels));
         StateSpaceHead<Scalar> turned = x;
         turned.initial_state.transposeInPlace();
         return relative_difference(state_space_recurrent(turned).y, state_space_recurrent(x).y);
       }},
  };
  for (const Identity& row : layer_identities::rows()) rows.push_back(row);
  return rows;
}

}  // namespace samestate::selective_scan_identities
