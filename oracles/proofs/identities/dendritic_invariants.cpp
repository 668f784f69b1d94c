#include <algorithm>

#include "oracles/proofs/identities/dendritic_draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/linear_attention.h"
#include "reference/scalars.h"

/// Properties of a single run of the dendritic layer: weights and masks of the router, windows, bounds of
/// states and outputs (EQUATIONS 7.7).
namespace samestate::dendritic_invariant_identities {
namespace {

DendriticSizes sizes(Index E, Index Es, Index K) {
  DendriticSizes s = small_dendritic_sizes();
  s.branch = {E, Es, K};
  return s;
}

/// Steps 1-13 from an empty cache.
template <class Scalar>
DendriticCoreInput<Scalar> core_input(const DendriticCase<Scalar>& c) {
  return dendritic_core_input(c.p, c.x, empty_dendritic_cache<Scalar>(c.p.sizes));
}

/// The sum over the branches [begin, end) of each token.
template <class Scalar>
Matrix<Scalar> sums(const Matrix<Scalar>& weights, Index begin, Index end) {
  return weights.middleCols(begin, end - begin).rowwise().sum();
}

/// Calls visit(head, branch is on, state before, run of this one token) for every virtual head and token.
template <class Scalar, class Visit>
void each_step(const DendriticCase<Scalar>& c, Visit&& visit) {
  const DendriticCoreInput<Scalar> in = core_input(c);
  const DendriticSizes& s = c.p.sizes;
  for (Index i = 0; i < s.virtual_heads(); ++i) {
    const Sequence<Scalar>& head = in.heads[static_cast<std::size_t>(i)];
    const Matrix<bool>& mask = in.routing[static_cast<std::size_t>(i % s.heads)].mask;
    Matrix<Scalar> state = head.initial_state;
    for (Index t = 0; t < head.tokens(); ++t) {
      const Sequence<Scalar> token = head.slice(t, t + 1, state);
      const Trajectory<Scalar> run = recurrent<GatedDeltaRule>(token);
      visit(token, mask(t, i % s.merged_heads() / s.heads), state, run);
      state = run.state;
    }
  }
}

/// (a - b) / b where a exceeds b.
template <class Scalar>
double violation(const Scalar& a, const Scalar& b) {
  return a > b ? static_cast<double>(Scalar((a - b) / b)) : 0.0;
}

template <class M>
auto frobenius(const M& m) {
  using Scalar = typename M::Scalar;
  using std::sqrt;
  return Scalar(sqrt(Scalar(m.squaredNorm())));
}

/// The largest eigenvalue of a positive semidefinite matrix of n rows, from above: it is at most the trace,
/// and c = tr G takes it to c sqrt(that of (G/c)^2). After k squarings the excess is a factor of n^(2^-k) at
/// most.
template <class Scalar>
Scalar largest_eigenvalue(const Matrix<Scalar>& G, int squarings = 30) {
  using std::sqrt;
  const Scalar c = G.trace();
  if (squarings == 0 || !(c > Scalar(0))) return c;
  const Matrix<Scalar> H = G / c;
  return c * sqrt(largest_eigenvalue<Scalar>(H * H, squarings - 1));
}

/// The splits on which the windows are tried: two, three, eight windows, more overlap than stride, none.
std::vector<OverlapWindows> splits() {
  return {overlap_windows(8, 2, 2), overlap_windows(8, 3, 2), overlap_windows(8, 4, 4),
          overlap_windows(9, 8, 1), overlap_windows(8, 2, 0), overlap_windows(8, 1, 5)};
}

template <class Scalar>
Matrix<Scalar> multiplicities(const OverlapWindows& w) {
  Matrix<Scalar> m(1, w.channels);
  for (Index c = 0; c < w.channels; ++c) m(0, c) = Scalar(static_cast<double>(w.multiplicity(c)));
  return m;
}

template <class Scalar>
double largest(const Matrix<Scalar>& x) {
  return static_cast<double>(x.cwiseAbs().maxCoeff());
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kLayer = "dendritic_attention";
  constexpr std::string_view kRouter = "dendritic_router";
  constexpr std::string_view kWindows = "overlap_windows";
  return {
      // 1 if anything of omega is negative, else how far its sums are from 1.
      {"P-01", "dendritic_weights_sum_to_one", kRouter, "omega >= 0 and sums to 1 for every token and head",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         double d = 0.0;
         for (const DendriticSizes& s : {sizes(4, 1, 2), sizes(5, 2, 2), sizes(4, 0, 2), sizes(4, 2, 0)}) {
           const DendriticCase<Scalar> c(seed, s);
           for (const DendriticRouting<Scalar>& r : core_input(c).routing) {
             if ((r.weights.array() < Scalar(0)).any()) return 1.0;
             d = std::max(d, relative_difference(sums(r.weights, 0, s.branches()),
                                                 Matrix<Scalar>::Ones(c.x.rows(), 1).eval()));
           }
         }
         return d;
       }},
      {"P-02", "dendritic_weight_halves", kRouter, "shared omega 1/(2 Es) each, shared and routed halves",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed, sizes(5, 2, 2));
         const Index T = c.x.rows();
         const Matrix<Scalar> half = Matrix<Scalar>::Constant(T, 1, Scalar(0.5));
         const Matrix<Scalar> each = Matrix<Scalar>::Constant(T, 2, Scalar(0.25));
         double d = 0.0;
         for (const DendriticRouting<Scalar>& r : core_input(c).routing) {
           d = std::max({d, relative_difference(sums(r.weights, 0, 2), half),
                         relative_difference(sums(r.weights, 2, 5), half),
                         relative_difference(r.weights.leftCols(2).eval(), each)});
         }
         return d;
       }},
      // mu is on for Es + K branches, the shared ones among them; where it is off omega is zero.
      {"P-03", "dendritic_active_branches", kRouter, "Es + K branches on, the shared ones always", exact,
       []<class Scalar>(std::uint64_t seed) {
         for (const DendriticSizes& s : {sizes(4, 1, 2), sizes(5, 2, 2), sizes(4, 0, 2), sizes(4, 2, 0)}) {
           const DendriticCase<Scalar> c(seed, s);
           for (const DendriticRouting<Scalar>& r : core_input(c).routing) {
             for (Index t = 0; t < c.x.rows(); ++t) {
               Index active = 0;
               for (Index e = 0; e < s.branches(); ++e) {
                 active += r.mask(t, e) ? 1 : 0;
                 if (e < s.branch.shared && !r.mask(t, e)) return 1.0;
                 if (!r.mask(t, e) && r.weights(t, e) != Scalar(0)) return 1.0;
               }
               if (active != s.branch.shared + s.branch.routed) return 1.0;
             }
           }
         }
         return 0.0;
       }},
      {"P-04", "dendritic_inactive_keeps_state", kLayer, "branch off at t: S_t = S_{t-1}", exact,
       []<class Scalar>(std::uint64_t seed) {
         double d = 0.0;
         each_step(DendriticCase<Scalar>(seed),
                   [&](const auto&, bool on, const Matrix<Scalar>& before, const Trajectory<Scalar>& run) {
                     if (!on) d = std::max(d, relative_difference(run.state, before));
                   });
         return d;
       }},
      {"P-05", "dendritic_inactive_reads_zero", kLayer, "branch off at t: o_t = 0", exact,
       []<class Scalar>(std::uint64_t seed) {
         double d = 0.0;
         each_step(DendriticCase<Scalar>(seed),
                   [&](const auto&, bool on, const auto&, const Trajectory<Scalar>& run) {
                     if (!on) d = std::max(d, static_cast<double>(run.o.cwiseAbs().maxCoeff()));
                   });
         return d;
       }},
      // Slices, added again and divided by m(c).
      {"P-12", "windows_overlap_add", kWindows, "overlap-add divided by m(c) restores the channels", equal,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         double d = 0.0;
         for (const OverlapWindows& w : splits()) {
           const Matrix<Scalar> x = draw.normal(3, w.channels);
           std::vector<Matrix<Scalar>> parts;
           for (Index n = 0; n < w.count; ++n) parts.push_back(w.slice(x, n));
           const Matrix<Scalar> m = multiplicities<Scalar>(w).replicate(3, 1);
           d = std::max(d, relative_difference(w.overlap_add(parts).cwiseQuotient(m).eval(), x));
         }
         return d;
       }},
      // One window is x, and windows without overlap laid side by side are x.
      {"P-12", "windows_partition", kWindows, "one window is the identity, no overlap a partition", exact,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         const Matrix<Scalar> x = draw.normal(3, 8);
         Matrix<Scalar> beside(3, 8);
         const OverlapWindows four = overlap_windows(8, 4, 0);
         for (Index n = 0; n < 4; ++n) beside.middleCols(2 * n, 2) = four.slice(x, n);
         return std::max(relative_difference(overlap_windows(8, 1, 3).slice(x, 0), x),
                         relative_difference(beside, x));
       }},
      // Linear attention in every window, summed, against linear attention with channel c counted m(c) times.
      {"P-13", "windows_count_channels", kWindows,
       "linear attention summed over windows = channel c weighted by m(c)", equal,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed);
         double d = 0.0;
         for (const OverlapWindows& w : splits()) {
           Sequence<Scalar> whole{draw.normal(5, w.channels),
                                  draw.normal(5, w.channels),
                                  draw.normal(5, 3),
                                  Vector<Scalar>::Zero(5),
                                  Vector<Scalar>::Ones(5),
                                  Scalar(1),
                                  Matrix<Scalar>::Zero(w.channels, 3)};
           Matrix<Scalar> sum = Matrix<Scalar>::Zero(5, 3);
           for (Index n = 0; n < w.count; ++n) {
             Sequence<Scalar> part = whole;
             part.q = w.slice(whole.q, n);
             part.k = w.slice(whole.k, n);
             part.initial_state = Matrix<Scalar>::Zero(w.width, 3);
             sum += recurrent<LinearAttention>(part).o;
           }
           whole.q = whole.q.cwiseProduct(multiplicities<Scalar>(w).replicate(5, 1)).eval();
           d = std::max(d, relative_difference(sum, recurrent<LinearAttention>(whole).o));
         }
         return d;
       }},
      {"P-14", "dendritic_zero_input", kLayer, "x = 0: output and states are 0", exact,
       []<class Scalar>(std::uint64_t seed) {
         DendriticCase<Scalar> c(seed);
         c.x.setZero();
         const DendriticResult<Scalar> r = run_dendritic(c.p, c.x);
         return std::max(largest(r.output), largest(stacked(r.cache.state)));
       }},
      {"P-15", "dendritic_gate_ranges", kLayer, "0 <= beta < 1, g <= 0, 0 <= e^g <= 1", exact,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         bool inside = true;
         for (const Sequence<Scalar>& head : core_input(DendriticCase<Scalar>(seed)).heads) {
           for (Index t = 0; t < head.tokens(); ++t) {
             const Scalar alpha = exp(head.g(t));
             inside = inside && head.beta(t) >= Scalar(0) && head.beta(t) < Scalar(1) &&
                      head.g(t) <= Scalar(0) && alpha >= Scalar(0) && alpha <= Scalar(1);
           }
         }
         return inside ? 0.0 : 1.0;
       }},
      {"P-16", "dendritic_state_growth", kLayer, "|S_t| <= e^g |S_{t-1}| + beta |v_t|", holds,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         double worst = 0.0;
         each_step(DendriticCase<Scalar>(seed),
                   [&](const Sequence<Scalar>& x, bool, const Matrix<Scalar>& before,
                       const Trajectory<Scalar>& run) {
                     const Scalar limit = exp(x.g(0)) * frobenius(before) + x.beta(0) * frobenius(x.v);
                     worst = std::max(worst, violation<Scalar>(frobenius(run.state), limit));
                   });
         return worst;
       }},
      {"P-17", "dendritic_output_size", kLayer, "|o_t| <= w^-1/2 |S_t|_2", holds,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         double worst = 0.0;
         each_step(DendriticCase<Scalar>(seed, small_dendritic_sizes(), 4),
                   [&](const Sequence<Scalar>& x, bool on, const auto&, const Trajectory<Scalar>& run) {
                     if (!on) return;
                     const Matrix<Scalar> gram = run.state.transpose() * run.state;
                     const Scalar limit = x.scale * sqrt(largest_eigenvalue(gram));
                     worst = std::max(worst, violation<Scalar>(frobenius(run.o), limit));
                   });
         return worst;
       }},
      // The core on (2 v1 - 3 v2, 2 S1 - 3 S2) against the two runs, at the q, k, g and beta of a virtual head.
      {"P-18", "dendritic_core_is_linear", kLayer, "the core is linear in (v, S_0)", equal,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed + 1);
         double d = 0.0;
         const DendriticCase<Scalar> c(seed);
         for (const Sequence<Scalar>& head : core_input(c).heads) {
           Sequence<Scalar> one = head, two = head, both = head;
           one.initial_state = draw.normal(head.key_width(), head.value_width());
           two.initial_state = draw.normal(head.key_width(), head.value_width());
           two.v = draw.normal(head.tokens(), head.value_width());
           both.v = Scalar(2) * one.v - Scalar(3) * two.v;
           both.initial_state = Scalar(2) * one.initial_state - Scalar(3) * two.initial_state;
           const Trajectory<Scalar> a = recurrent<GatedDeltaRule>(one), b = recurrent<GatedDeltaRule>(two),
                                    sum = recurrent<GatedDeltaRule>(both);
           d = std::max({d, relative_difference(sum.o, (Scalar(2) * a.o - Scalar(3) * b.o).eval()),
                         relative_difference(sum.state, (Scalar(2) * a.state - Scalar(3) * b.state).eval())});
         }
         return d;
       }},
      {"P-19", "dendritic_recall", kLayer, "beta = 1, g = 0: k^T S_t = |k|^2 v + (1 - |k|^2) k^T S_{t-1}",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         IdentityDraw<Scalar> draw(seed + 1);
         double d = 0.0;
         each_step(DendriticCase<Scalar>(seed), [&](Sequence<Scalar> x, bool on, const auto&, const auto&) {
           if (!on) return;
           x.beta(0) = Scalar(1);
           x.g(0) = Scalar(0);
           x.initial_state = draw.normal(x.key_width(), x.value_width());
           const Scalar n = x.k.squaredNorm();
           const Matrix<Scalar> before = x.k * x.initial_state;
           const Matrix<Scalar> after = x.k * recurrent<GatedDeltaRule>(x).state;
           d = std::max(d, relative_difference(after, (n * x.v + (Scalar(1) - n) * before).eval()));
         });
         return d;
       }},
      // All candidates chosen: every branch on, the weights still the router's.
      {"P-21", "dendritic_all_chosen", kRouter, "K = E - Es: every branch on, omega not uniform", exact,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed, sizes(4, 1, 3));
         double uneven = 0.0;
         for (const DendriticRouting<Scalar>& r : core_input(c).routing) {
           if (!r.mask.all()) return 1.0;
           const Matrix<Scalar> even = Matrix<Scalar>::Constant(c.x.rows(), 4, Scalar(0.25));
           uneven = std::max(uneven, relative_difference(r.weights, even));
         }
         return uneven > 0.0 ? 0.0 : 1.0;
       }},
      {"P-22", "dendritic_zero_weights", kLayer, "W_g = 0, o_norm = 0 or W_o = 0: output 0", exact,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         double d = 0.0;
         DendriticParameters<Scalar> p = c.p;
         p.g_proj.setZero();
         d = std::max(d, largest(run_dendritic(p, c.x).output));
         p = c.p;
         p.o_norm.setZero();
         d = std::max(d, largest(run_dendritic(p, c.x).output));
         p = c.p;
         p.o_proj.setZero();
         return std::max(d, largest(run_dendritic(p, c.x).output));
       }},
      // 3 a with epsilon 9e is a with epsilon e.
      {"P-25", "dendritic_factor_of_a", kLayer, "a times 3 with epsilon times 9: same output (8.1)", equal,
       []<class Scalar>(std::uint64_t seed) {
         DendriticCase<Scalar> c(seed);
         const DendriticResult<Scalar> r = run_dendritic(c.p, c.x);
         const Matrix<Scalar> z = linear(c.x, c.p.g_proj);
         c.p.norm_epsilon *= Scalar(9);
         return relative_difference(dendritic_output<Scalar>(c.p, Scalar(3) * r.a, z), r.output);
       }},
      // The same without adapting epsilon is seen, which a norm that lost its epsilon would hide.
      {"NC-dendritic-factor-of-a", "dendritic_factor_shows_through_epsilon", kLayer,
       "a times 3, the same epsilon (8.1)", differs,
       []<class Scalar>(std::uint64_t seed) {
         DendriticCase<Scalar> c(seed);
         c.p.norm_epsilon = Scalar(1e-2);
         const DendriticResult<Scalar> r = run_dendritic(c.p, c.x);
         return relative_difference(dendritic_output<Scalar>(c.p, Scalar(3) * r.a, linear(c.x, c.p.g_proj)),
                                    r.output);
       }},
  };
}

}  // namespace samestate::dendritic_invariant_identities
