#include "reference/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/state_space_draw.h"
#include "reference/retention.h"
#include "reference/scalars.h"
#include "reference/selective_scan_parallel.h"

namespace samestate {
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

template <class Scalar>
double hillis_steele(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  return std::max(difference(selective_scan_hillis_steele(x, kEuler), selective_scan_recurrent(x, kEuler)),
                  difference(selective_scan_hillis_steele(x, kHold), selective_scan_recurrent(x, kHold)));
}

template <class Scalar>
double blelloch(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  double worst = 0.0;
  for (const Discretisation mode : {kEuler, kHold}) {
    for (Index T = 0; T <= x.tokens(); ++T) {
      const SelectiveScan<Scalar> part = x.slice(0, T, x.initial_state);
      worst = std::max(worst,
                       difference(selective_scan_blelloch(part, mode), selective_scan_recurrent(part, mode)));
    }
  }
  return worst;
}

template <class Scalar>
double chunks(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  double worst = 0.0;
  for (const Discretisation mode : {kEuler, kHold}) {
    for (const Index chunk : {1, 4, 5, 64}) {
      worst = std::max(worst,
                       difference(selective_scan_chunked(x, mode, chunk), selective_scan_recurrent(x, mode)));
    }
  }
  return worst;
}

/// Resumed from the state, in another form, at every token.
template <class Scalar>
double resumed_scan(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  const SelectiveScanOutput<Scalar> whole = selective_scan_recurrent(x, kEuler);
  double worst = 0.0;
  for (Index cut = 0; cut <= x.tokens(); ++cut) {
    const auto first = selective_scan_recurrent(x.slice(0, cut, x.initial_state), kEuler);
    const auto rest = selective_scan_blelloch(x.slice(cut, x.tokens() - cut, first.state), kEuler);
    Matrix<Scalar> out(x.tokens(), kChannels);
    out << first.out, rest.out;
    worst =
        std::max({worst, relative_difference(out, whole.out), relative_difference(rest.state, whole.state)});
  }
  return worst;
}

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

template <class Scalar>
double hold_composes(std::uint64_t seed) {
  return halved_steps<Scalar>(seed, kHold);
}

template <class Scalar>
double euler_does_not_compose(std::uint64_t seed) {
  return halved_steps<Scalar>(seed, kEuler);
}

template <class Scalar>
double without_decay(std::uint64_t seed) {
  SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  x.A.setZero();
  return difference(selective_scan_recurrent(x, kHold), selective_scan_recurrent(x, kEuler));
}

/// (Bbar_hold A + 1) against exp(Delta A): the same exponential through exp and through expm1, over the range
/// where the factor takes each of its branches.
template <class Scalar>
double factor_and_decay(std::uint64_t seed) {
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
}

/// The hold's factor lies in [0, min(Delta, -1/A)], for any Delta (hazard 8.3).
template <class Scalar>
double hold_is_bounded(std::uint64_t seed) {
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
}

// --- EQ-08: the duality ---------------------------------------------------------------------------------

template <class Scalar>
double duality(std::uint64_t seed) {
  const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  const Trajectory<Scalar> dual = recurrent<Retention>(as_retention(x));
  const StateSpaceOutput<Scalar> mine = state_space_recurrent(x);
  const Matrix<Scalar> y = dual.o + x.skip * x.x;
  const Matrix<Scalar> state = dual.state.transpose();
  return std::max(relative_difference(mine.y, y), relative_difference(mine.state, state));
}

template <class Scalar>
double quadratic_dual(std::uint64_t seed) {
  const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  return difference(state_space_quadratic(x), state_space_recurrent(x));
}

template <class Scalar>
double retention_dual(std::uint64_t seed) {
  StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  x.skip = Scalar(0);
  x.initial_state.setZero();
  return relative_difference(state_space_quadratic(x).y, retention_parallel(as_retention(x)));
}

template <class Scalar>
double dual_chunks(std::uint64_t seed) {
  const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  double worst = 0.0;
  for (const Index chunk : {1, 4, 5, 64}) {
    worst = std::max(worst, difference(state_space_chunked(x, chunk), state_space_recurrent(x)));
  }
  return worst;
}

/// RetNet as a state space: Delta = 1, A = log gamma_h.
template <class Scalar>
double retnet_as_state_space(std::uint64_t seed) {
  using std::exp;
  StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  x.delta.setOnes();
  x.A = retention_log_decay<Scalar>(2);
  x.skip = Scalar(0);
  x.initial_state.setZero();
  const Matrix<Scalar> parallel = retention_parallel_constant(as_retention(x), Scalar(exp(x.A)));
  return relative_difference(state_space_recurrent(x).y, parallel);
}

/// A head is Mamba's scan with one rate and one time step for all its channels (Euler).
template <class Scalar>
double head_as_scan(std::uint64_t seed) {
  SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  const StateSpaceHead<Scalar> head = draw_head<Scalar>(seed);
  x.A.setConstant(head.A);
  x.skip.setConstant(head.skip);
  for (Index d = 0; d < kChannels; ++d) x.delta.col(d) = head.delta;
  const SelectiveScanOutput<Scalar> scan = selective_scan_recurrent(x, kEuler);
  return difference(state_space_recurrent(head), StateSpaceOutput<Scalar>{scan.y, scan.state});
}

// --- Negative controls ----------------------------------------------------------------------------------

template <class Scalar>
double hold_for_euler(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  return relative_difference(selective_scan_recurrent(x, kHold).y, selective_scan_recurrent(x, kEuler).y);
}

template <class Scalar>
double skip_after_gate(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  SelectiveScan<Scalar> bare = x;
  bare.skip.resize(0);
  const Matrix<Scalar> after = selective_scan_recurrent(bare, kEuler).out + x.u * x.skip.asDiagonal();
  return relative_difference(after, selective_scan_recurrent(x, kEuler).out);
}

template <class Scalar>
double no_gate(std::uint64_t seed) {
  const SelectiveScanOutput<Scalar> out = selective_scan_recurrent(draw_scan<Scalar>(seed), kEuler);
  return relative_difference(out.y, out.out);
}

/// SSM-9 as printed: h = A h + B u, with A = -exp(A_log) as the multiplier.
template <class Scalar>
double raw_rate(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  Matrix<Scalar> h = x.initial_state;
  for (Index t = 0; t < x.tokens(); ++t) {
    const Matrix<Scalar> write = x.u.row(t).transpose() * x.B.row(t);
    h = x.A.cwiseProduct(h) + write;
  }
  return relative_difference(h, selective_scan_recurrent(x, kEuler).state);
}

template <class Scalar>
double undiscretised_input(std::uint64_t seed) {
  SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  const SelectiveScanOutput<Scalar> right = selective_scan_recurrent(x, kEuler);
  x.u = x.u.cwiseQuotient(x.delta);  // cancels the Delta of Delta B u
  return relative_difference(selective_scan_recurrent(x, kEuler).state, right.state);
}

template <class Scalar>
double reads_before_write(std::uint64_t seed) {
  const StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  const StateSpaceOutput<Scalar> right = state_space_recurrent(x);
  const Vector<Scalar> own = x.delta.cwiseProduct(x.B.cwiseProduct(x.C).rowwise().sum());
  const Matrix<Scalar> early = right.y - own.asDiagonal() * x.x;
  return relative_difference(early, right.y);
}

/// The initial state taken as [N, P] where it is [P, N] of the same extents.
template <class Scalar>
double transposed_state(std::uint64_t seed) {
  StateSpaceHead<Scalar> x = draw_head<Scalar>(seed);
  x.B = Matrix<Scalar>(x.B.leftCols(kChannels));
  x.C = Matrix<Scalar>(x.C.leftCols(kChannels));
  x.initial_state = Matrix<Scalar>(x.initial_state.leftCols(kChannels));
  StateSpaceHead<Scalar> turned = x;
  turned.initial_state.transposeInPlace();
  return relative_difference(state_space_recurrent(turned).y, state_space_recurrent(x).y);
}

}  // namespace

std::vector<Identity> selective_scan_identities() {
  constexpr std::string_view scan = "selective_scan";
  constexpr std::string_view dual = "state_space_duality";
  constexpr Expectation equal = Expectation::equal;
  constexpr Expectation differs = Expectation::differs;
  std::vector<Identity> rows{
      {"EQ-17", "scan_hillis_steele", scan, "sequential scan = Hillis-Steele, T = 13, Euler and hold", equal,
       &hillis_steele<double>, &hillis_steele<Decimal50>},
      {"EQ-17", "scan_blelloch", scan, "sequential scan = Blelloch, T = 0 .. 13, Euler and hold", equal,
       &blelloch<double>, &blelloch<Decimal50>},
      {"EQ-17", "scan_chunked", scan, "sequential scan = chunks of 1, 4, 5, 64, Euler and hold", equal,
       &chunks<double>, &chunks<Decimal50>},
      {"EQ-17", "scan_resumed", scan, "one scan = sequential, then Blelloch from its state, cut anywhere",
       equal, &resumed_scan<double>, &resumed_scan<Decimal50>},
      {"EQ-17", "hold_composes", scan,
       "zero-order hold: two half steps under a held input = one step (exact in time)", equal,
       &hold_composes<double>, &hold_composes<Decimal50>},
      {"EQ-17", "hold_without_decay", scan, "A = 0: the hold's factor is its limit Delta, Euler's",
       Expectation::exact, &without_decay<double>, &without_decay<Decimal50>},
      {"EQ-17", "hold_factor_and_decay", scan, "Bbar A / B + 1 = exp(Delta A), Delta = 2^-50 .. 2^9", equal,
       &factor_and_decay<double>, &factor_and_decay<Decimal50>},
      {"EQ-17", "hold_is_bounded", scan, "0 <= Bbar / B <= min(Delta, -1/A) at any Delta (hazard 8.3)",
       Expectation::holds, &hold_is_bounded<double>, &hold_is_bounded<Decimal50>},
      {"EQ-08", "state_space_is_retention", dual,
       "Mamba-2 recurrence = C-GLA recurrence with q=C, k=B, v=Delta x", equal, &duality<double>,
       &duality<Decimal50>},
      {"EQ-08", "state_space_quadratic", dual,
       "Mamba-2 recurrence = quadratic dual (C B^T o L) Delta x, with an initial state", equal,
       &quadratic_dual<double>, &quadratic_dual<Decimal50>},
      {"EQ-08", "state_space_dual_is_parallel_retention", dual,
       "quadratic dual = parallel retention of RET-2", equal, &retention_dual<double>,
       &retention_dual<Decimal50>},
      {"EQ-08", "state_space_chunked", dual,
       "Mamba-2 recurrence = block decomposition, chunks of 1, 4, 5, 64", equal, &dual_chunks<double>,
       &dual_chunks<Decimal50>},
      {"EQ-08", "retnet_is_state_space", dual,
       "RetNet, powers of gamma = Mamba-2 with Delta = 1, A = log gamma", equal,
       &retnet_as_state_space<double>, &retnet_as_state_space<Decimal50>},
      {"EQ-08", "state_space_is_scan", dual,
       "Mamba-2 head = Mamba-1 Euler scan with one rate and one step for all channels", equal,
       &head_as_scan<double>, &head_as_scan<Decimal50>},
      {"NC-hold-for-euler", "scan_hold_for_euler", scan, "zero-order hold in place of Euler (E-13)", differs,
       &hold_for_euler<double>, &hold_for_euler<Decimal50>},
      {"NC-euler-half-steps", "scan_euler_half_steps", scan, "Euler: two half steps are not one step",
       differs, &euler_does_not_compose<double>, &euler_does_not_compose<Decimal50>},
      {"NC-skip-after-gate", "scan_skip_after_gate", scan, "D u added after the gate, not before", differs,
       &skip_after_gate<double>, &skip_after_gate<Decimal50>},
      {"NC-scan-no-gate", "scan_without_gate", scan, "no silu(z) (SSM-10 as printed)", differs,
       &no_gate<double>, &no_gate<Decimal50>},
      {"NC-raw-rate", "scan_raw_rate", scan, "A as the multiplier of the state (SSM-9 as printed)", differs,
       &raw_rate<double>, &raw_rate<Decimal50>},
      {"NC-raw-input", "scan_raw_input", scan, "B u written without Delta", differs,
       &undiscretised_input<double>, &undiscretised_input<Decimal50>},
      {"NC-state-space-read-before-write", "state_space_read_before_write", dual,
       "y reads the state before the own write", differs, &reads_before_write<double>,
       &reads_before_write<Decimal50>},
      {"NC-state-space-transposed", "state_space_transposed_state", dual,
       "initial state [N, P] taken for [P, N]", differs, &transposed_state<double>,
       &transposed_state<Decimal50>},
  };
  for (const Identity& row : layer_identities()) rows.push_back(row);
  return rows;
}

}  // namespace samestate
