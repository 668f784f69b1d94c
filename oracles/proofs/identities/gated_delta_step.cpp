#include "reference/gated_delta_step.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/layers/gated_delta_net.h"
#include "reference/linear.h"
#include "reference/scalars.h"

namespace samestate::gated_delta_step_identities {
namespace {

constexpr Index kTokens = 7;
constexpr Index kSlots = 4;
constexpr Index kKeyHeads = 2;
constexpr Index kValueHeads = 4;
constexpr Index kKeyWidth = 3;
constexpr Index kValueWidth = 5;
constexpr Index kOfSlot = kValueHeads * kKeyWidth;  // rows of the pool

template <class Scalar>
GatedDeltaStep<Scalar> draw_step(std::uint64_t seed) {
  IdentityDraw<Scalar> draw(seed);
  GatedDeltaStep<Scalar> x;
  x.key_heads = kKeyHeads;
  x.q = draw.normal(kTokens * kKeyHeads, kKeyWidth);
  x.k = draw.normal(kTokens * kKeyHeads, kKeyWidth);
  x.v = draw.normal(kTokens * kValueHeads, kValueWidth);
  x.a = draw.normal(kTokens, kValueHeads);
  x.b = draw.normal(kTokens, kValueHeads);
  x.A_log = draw.normal_vector(kValueHeads, 0.5);
  x.dt_bias = draw.uniform_vector(kValueHeads, -1.0, 1.0);
  x.pool = draw.normal(kSlots * kOfSlot, kValueWidth, 0.5);
  x.slot = 2;
  return x;
}

template <class Scalar>
GatedDeltaStepOutput<Scalar> step(const GatedDeltaStep<Scalar>& x) {
  return gated_delta_step(x, [](const Sequence<Scalar>& head) { return recurrent<GatedDeltaRule>(head); });
}

template <class Scalar>
double difference(const GatedDeltaStepOutput<Scalar>& a, const GatedDeltaStepOutput<Scalar>& b) {
  return std::max(relative_difference(a.o, b.o), relative_difference(a.pool, b.pool));
}

/// The tokens [begin, end) from another pool.
template <class Scalar>
GatedDeltaStep<Scalar> tokens(const GatedDeltaStep<Scalar>& x, Index begin, Index end, Matrix<Scalar> pool) {
  GatedDeltaStep<Scalar> part = x;
  const Index n = end - begin;
  part.q = x.q.middleRows(begin * kKeyHeads, n * kKeyHeads);
  part.k = x.k.middleRows(begin * kKeyHeads, n * kKeyHeads);
  part.v = x.v.middleRows(begin * kValueHeads, n * kValueHeads);
  part.a = x.a.middleRows(begin, n);
  part.b = x.b.middleRows(begin, n);
  part.pool = std::move(pool);
  return part;
}

template <class Scalar>
GatedDeltaStepOutput<Scalar> in_calls(const GatedDeltaStep<Scalar>& x, std::vector<Index> cuts) {
  GatedDeltaStepOutput<Scalar> out{Matrix<Scalar>(x.v.rows(), x.v.cols()), x.pool};
  cuts.push_back(kTokens);
  Index begin = 0;
  for (const Index end : cuts) {
    GatedDeltaStepOutput<Scalar> part = step(tokens(x, begin, end, out.pool));
    out.o.middleRows(begin * kValueHeads, part.o.rows()) = part.o;
    out.pool = std::move(part.pool);
    begin = end;
  }
  return out;
}

/// Slot s of a pool becomes slot to[s].
template <class Scalar>
Matrix<Scalar> moved(const Matrix<Scalar>& pool, const std::vector<Index>& to) {
  Matrix<Scalar> out(pool.rows(), pool.cols());
  for (Index s = 0; s < kSlots; ++s)
    out.middleRows(to[static_cast<std::size_t>(s)] * kOfSlot, kOfSlot) =
        pool.middleRows(s * kOfSlot, kOfSlot);
  return out;
}

/// The step between the layer's convolution and its norm, against the layer: output of the rule and its states.
template <class Scalar>
double of_layer(std::uint64_t seed) {
  constexpr Index kHidden = 6;
  constexpr Index kKernel = 4;
  IdentityDraw<Scalar> draw(seed);
  const GatedDeltaNetShape shape{kKeyHeads, kValueHeads, kKeyWidth, kValueWidth, ProjectionLayout::flat};
  GatedDeltaNetWeights<Scalar> w;
  w.in_proj_qkvz = draw.normal(2 * shape.keys() + 2 * shape.values(), kHidden, 0.5);
  w.in_proj_ba = draw.normal(2 * kValueHeads, kHidden, 0.5);
  w.conv1d = draw.normal(shape.channels(), kKernel, 0.5);
  w.A_log = draw.normal_vector(kValueHeads, 0.5);
  w.dt_bias = draw.uniform_vector(kValueHeads, -1.0, 1.0);
  w.norm = draw.uniform_vector(kValueWidth, 0.5, 1.5);
  w.out_proj = draw.normal(kHidden, shape.values(), 0.5);
  const Matrix<Scalar> hidden = draw.normal(kTokens, kHidden);
  const auto layer =
      gated_delta_net(hidden, w, shape, empty_gated_delta_net_cache(shape, w),
                      [](const Sequence<Scalar>& head) { return recurrent<GatedDeltaRule>(head); });
  const Matrix<Scalar> qkv =
      short_convolution(layer.mixed, w.conv1d, {}, empty_convolution_state<Scalar>(kKernel, shape.channels()))
          .y;
  const Matrix<Scalar> ba = linear(hidden, w.in_proj_ba);
  const auto heads = [&](Index first, Index count, Index width) {
    Matrix<Scalar> x(kTokens * count, width);
    for (Index t = 0; t < kTokens; ++t) {
      for (Index h = 0; h < count; ++h) x.row(t * count + h) = qkv.row(t).segment(first + h * width, width);
    }
    return x;
  };
  GatedDeltaStep<Scalar> x;
  x.key_heads = kKeyHeads;
  x.q = heads(0, kKeyHeads, kKeyWidth);
  x.k = heads(shape.keys(), kKeyHeads, kKeyWidth);
  x.v = heads(2 * shape.keys(), kValueHeads, kValueWidth);
  x.b = ba.leftCols(kValueHeads);
  x.a = ba.rightCols(kValueHeads);
  x.A_log = w.A_log;
  x.dt_bias = w.dt_bias;
  x.pool = Matrix<Scalar>::Zero(kSlots * kOfSlot, kValueWidth);
  x.slot = 1;
  const GatedDeltaStepOutput<Scalar> out = step(x);
  double worst = 0.0;
  for (Index h = 0; h < kValueHeads; ++h) {
    Matrix<Scalar> o(kTokens, kValueWidth);
    for (Index t = 0; t < kTokens; ++t) o.row(t) = out.o.row(t * kValueHeads + h);
    const Matrix<Scalar> core = layer.core.middleCols(h * kValueWidth, kValueWidth);
    const Matrix<Scalar> state = out.pool.middleRows(kOfSlot + h * kKeyWidth, kKeyWidth);
    worst = std::max({worst, relative_difference(o, core),
                      relative_difference(state, layer.cache.state[static_cast<std::size_t>(h)])});
  }
  return worst;
}

/// How far o is from the step's where the heads are what `change` makes of them.
template <class Scalar, class Change>
double changed(std::uint64_t seed, Change&& change) {
  const GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
  const auto run = [&](const Sequence<Scalar>& head) {
    Sequence<Scalar> other = head;
    change(other);
    return recurrent<GatedDeltaRule>(other);
  };
  return relative_difference(gated_delta_step(x, run).o, step(x).o);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "gated_delta_step";
  return {
      {"EQ-01", "step_expanded", kSystem, "the step by the row recurrence = by the expanded form, [dv, dk]",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const auto run = [](const Sequence<Scalar>& head) { return gated_delta_rule_expanded(head); };
         return difference(gated_delta_step(x, run), step(x));
       }},
      {"EQ-03", "step_any_split", kSystem, "all tokens in one call = any two cuts, the pool carried", exact,
       []<class Scalar>(std::uint64_t seed) {
         const GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const GatedDeltaStepOutput<Scalar> whole = step(x);
         double worst = 0.0;
         for (Index a = 0; a <= kTokens; ++a) {
           for (Index b = a; b <= kTokens; ++b)
             worst = std::max(worst, difference(in_calls(x, {a, b}), whole));
         }
         return worst;
       }},
      {"EQ-03", "step_of_layer", kSystem, "the layer's rule and its states = the step behind its convolution",
       exact, []<class Scalar>(std::uint64_t seed) { return of_layer<Scalar>(seed); }},
      // The slots are places: a request in another one, of a pool turned with it, is the same.
      {"P-08", "step_slots_permuted", kSystem, "slots permuted, the pool with them = the same", exact,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         GatedDeltaStepOutput<Scalar> right = step(x);
         const std::vector<Index> to{2, 0, 3, 1};
         right.pool = moved(right.pool, to);
         x.pool = moved(x.pool, to);
         x.slot = to[static_cast<std::size_t>(x.slot)];
         return difference(step(x), right);
       }},
      {"P-08", "step_unowned_rows", kSystem,
       "rows of the pool that are not the slot's stay, and are not read", exact,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const GatedDeltaStepOutput<Scalar> right = step(x);
         Matrix<Scalar> expected = right.pool;
         for (Index s = 0; s < kSlots; ++s) {
           if (s == x.slot) continue;
           expected.middleRows(s * kOfSlot, kOfSlot).setConstant(Scalar(1000.0));
           x.pool.middleRows(s * kOfSlot, kOfSlot).setConstant(Scalar(1000.0));
         }
         return difference(step(x), GatedDeltaStepOutput<Scalar>{right.o, expected});
       }},
      {"P-08", "step_requests_of_one_pool", kSystem, "two requests in one pool, in either order = each alone",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const GatedDeltaStep<Scalar> first = draw_step<Scalar>(seed);
         GatedDeltaStep<Scalar> second = draw_step<Scalar>(seed + 1000);
         second.pool = first.pool;
         second.slot = 0;
         const GatedDeltaStepOutput<Scalar> one = step(first);
         const GatedDeltaStepOutput<Scalar> two = step(second);
         GatedDeltaStep<Scalar> after_one = second;
         GatedDeltaStep<Scalar> after_two = first;
         after_one.pool = one.pool;
         after_two.pool = two.pool;
         const GatedDeltaStepOutput<Scalar> second_last = step(after_one);
         const GatedDeltaStepOutput<Scalar> first_last = step(after_two);
         return std::max({relative_difference(second_last.o, two.o), relative_difference(first_last.o, one.o),
                          relative_difference(second_last.pool, first_last.pool)});
       }},
      {"P-14", "step_null_slot", kSystem, "without a slot o = 0 and the pool stays", exact,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         x.slot = kNullSlot;
         const Matrix<Scalar> zero = Matrix<Scalar>::Zero(x.v.rows(), x.v.cols());
         return difference(step(x), GatedDeltaStepOutput<Scalar>{zero, x.pool});
       }},
      {"NC-null-slot-clamped", "step_null_slot_clamped", kSystem, "slot -1 clamped to slot 0 (BUGS M29)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         x.slot = 0;
         return relative_difference(step(x).pool, x.pool);
       }},
      {"NC-other-slot", "step_other_slot", kSystem, "the state of the next slot", differs,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const Matrix<Scalar> right = step(x).o;
         ++x.slot;
         return relative_difference(step(x).o, right);
       }},
      {"NC-softplus-missing", "step_without_softplus", kSystem, "g = -exp(A_log) (a + dt_bias)", differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         using std::log;
         const GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         // softplus(a') = |a + dt_bias|, so that nothing grows.
         GatedDeltaStep<Scalar> other = x;
         for (Index t = 0; t < kTokens; ++t) {
           for (Index h = 0; h < kValueHeads; ++h) {
             Scalar raw = x.a(t, h) + x.dt_bias(h);
             if (raw < Scalar(0)) raw = -raw;
             other.a(t, h) = log(Scalar(exp(raw) - Scalar(1))) - x.dt_bias(h);
           }
         }
         return relative_difference(step(other).o, step(x).o);
       }},
      {"NC-bias-missing", "step_without_bias", kSystem, "dt_bias left out (GDN-12)", differs,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const Matrix<Scalar> right = step(x).o;
         x.dt_bias.setZero();
         return relative_difference(step(x).o, right);
       }},
      {"NC-beta-doubled", "step_beta_doubled", kSystem, "beta = 2 sigma(b)", differs,
       []<class Scalar>(std::uint64_t seed) {
         return changed<Scalar>(seed, [](Sequence<Scalar>& head) { head.beta *= Scalar(2); });
       }},
      {"NC-no-scale", "step_without_scale", kSystem, "no dk^-1/2 (GDN-33)", differs,
       []<class Scalar>(std::uint64_t seed) {
         return changed<Scalar>(seed, [](Sequence<Scalar>& head) { head.scale = Scalar(1); });
       }},
      {"NC-not-normalised", "step_without_l2norm", kSystem, "q and k taken as they are (GDN-32)", differs,
       []<class Scalar>(std::uint64_t seed) {
         GatedDeltaStep<Scalar> x = draw_step<Scalar>(seed);
         const Matrix<Scalar> right = step(x).o;
         x.normalises = false;
         return relative_difference(step(x).o, right);
       }},
  };
}

}  // namespace samestate::gated_delta_step_identities
