/// The chunked backward kernels round where the reference marks its rounding points, and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/cpu/backward/chunked.h"
#include "optimized/cpu/products.h"
#include "optimized/cpu/rounding.h"
#include "reference/backward/chunk.h"
#include "reference/backward/heads.h"
#include "reference/delta_rule.h"
#include "reference/dual_number.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "tests/optimized/backward_call.h"
#include "tests/optimized/contracts.h"

namespace samestate {

/// A double whose reference rounds as a kernel does: results to a 16-bit format, or operands to tf32.
using Rounding = DualNumber<double>;

template <>
struct RoundingPoint<Rounding> {
  static constexpr bool rounds = true;
  static inline float (*result)(float) = nullptr;    ///< rounds results, if it is not null
  static inline float (*operands)(float) = nullptr;  ///< rounds operands of products, if it is not null
  static inline const PointRow* left_out = nullptr;
  static inline std::set<std::string_view> switched;  ///< the points that a contract names
  static bool rounds_at(Point point) {
    return result != nullptr && &point.row() != left_out &&
           point.row().only_if_named == switched.contains(point.row().name);
  }
  static bool rounds_operands(Point point) { return operands != nullptr && &point.row() != left_out; }
  static Rounding stored(const Rounding& x) { return rounded(x, result); }
  static Rounding operand(const Rounding& x) { return rounded(x, operands); }
  static Rounding shift(const Rounding& x) { return x; }

 private:
  static Rounding rounded(const Rounding& x, float (*round)(float)) {
    return Rounding(static_cast<double>(round(static_cast<float>(x.value()))));
  }
};

namespace {

using cpu::BackwardPoint;
using testing::BackwardCall;
using testing::Inputs;
using testing::relative_error;
using testing::Shape;
using testing::Values;
using Marks = RoundingPoint<Rounding>;

/// A kernel that leaves one point out.
class LeavingOut : public cpu::ChunkedBackward {
 public:
  LeavingOut(const cpu::System& system, const cpu::BackwardArguments& arguments, const Contract& contract,
             const BackwardPoint* left_out)
      : ChunkedBackward(system, arguments, contract), left_out_(left_out) {}

 protected:
  Format format_at(BackwardPoint point) const override {
    return left_out(point) ? Format::fp32 : ChunkedBackward::format_at(point);
  }
  void multiply(const cpu::Block& a, const cpu::Block& b, cpu::Block& c, BackwardPoint point) const override {
    if (left_out(point)) return cpu::product(cpu::MatrixUnit{}, a, b, c);
    ChunkedBackward::multiply(a, b, c, point);
  }

 private:
  [[nodiscard]] bool left_out(BackwardPoint point) const {
    return left_out_ != nullptr && *left_out_ == point;
  }
  const BackwardPoint* left_out_;
};

/// Kernels without a gate as public ones are: dS is rounded before its products, which the scale multiplies; without a
/// delta term scale q is rounded too, and P^T dO is not kept.
class ScalesProducts : public cpu::ChunkedBackward {
 public:
  using ChunkedBackward::ChunkedBackward;

 protected:
  Format format_at(BackwardPoint point) const override {
    const bool kept = point != BackwardPoint::dv_local || system_.delta;
    return kept ? ChunkedBackward::format_at(point) : Format::fp32;
  }
  void score_cotangents() override {
    multiply_by_transposed(dO_, N_, dP_, BackwardPoint::dS_score);
    mask(dP_, 1);
    store(dP_, BackwardPoint::dS_score);
  }
  void query_gradient() override {
    multiply_by_transposed(dO_, S_operand_, dQ_, BackwardPoint::dq_of_state);
    multiply(dP_, K_, product_, BackwardPoint::dq_of_scores);
    for (std::int64_t i = 0; i < dQ_.size(); ++i)
      dQ_.values[i] = arguments_.scale * (dQ_.values[i] + product_.values[i]);
  }
  void key_gradient() override {
    multiply_by_transposed(N_, D_operand_, dK_of_state_, BackwardPoint::dk_of_state);
    multiply_transposed(dP_, Q_, dK_, BackwardPoint::dk_of_scores);
    for (std::int64_t i = 0; i < dK_.size(); ++i)
      dK_.values[i] = dK_of_state_.values[i] + arguments_.scale * dK_.values[i];
  }
  void state_cotangent() override {
    if (system_.delta) return ChunkedBackward::state_cotangent();
    operand_ = Q_;
    for (float& x : operand_.values) x *= arguments_.scale;
    store(operand_, BackwardPoint::q_decayed);
    multiply_transposed(operand_, dO_, product_, BackwardPoint::q_decayed);
    for (std::int64_t i = 0; i < D_.size(); ++i) D_.values[i] += product_.values[i];
  }
};

/// Kernels whose l2norm is a kernel of its own: the rule reads q and k as it stored them.
class NormalisesApart : public cpu::ChunkedBackward {
 public:
  using ChunkedBackward::ChunkedBackward;

 protected:
  void load_chunk(const cpu::BackwardHead& head, std::int64_t first, std::int64_t length) override {
    ChunkedBackward::load_chunk(head, first, length);
    if (!arguments_.l2norm) return;
    cpu::round_in_place(Q_, contract_.input);
    cpu::round_in_place(K_, contract_.input);
  }
};

struct NamedPoint {
  BackwardPoint point;
  const PointRow* row;
  bool stored, product;
  bool of_delta;
};

NamedPoint named(BackwardPoint point, Point of, bool of_delta = false) {
  const PointUse use = of.row().use;
  return {point, &of.row(), use != PointUse::product, use != PointUse::stored, of_delta};
}

#define SAMESTATE_POINT(name, ...) \
  named(BackwardPoint::name, points::chunk_backward[#name] __VA_OPT__(, ) __VA_ARGS__)
const std::vector<NamedPoint> kPoints = {SAMESTATE_POINT(key_products, true),
                                         SAMESTATE_POINT(T, true),
                                         SAMESTATE_POINT(beta_v, true),
                                         SAMESTATE_POINT(beta_k, true),
                                         SAMESTATE_POINT(U, true),
                                         SAMESTATE_POINT(W, true),
                                         SAMESTATE_POINT(state_operand),
                                         SAMESTATE_POINT(read_by_W, true),
                                         SAMESTATE_POINT(v_new),
                                         SAMESTATE_POINT(v_decayed),
                                         SAMESTATE_POINT(state),
                                         SAMESTATE_POINT(scores),
                                         SAMESTATE_POINT(P),
                                         SAMESTATE_POINT(dv_local),
                                         SAMESTATE_POINT(dh_operand),
                                         SAMESTATE_POINT(dv_carried),
                                         SAMESTATE_POINT(dv_new),
                                         SAMESTATE_POINT(q_decayed),
                                         SAMESTATE_POINT(dh_of_W, true),
                                         SAMESTATE_POINT(dw, true),
                                         SAMESTATE_POINT(dS_score),
                                         SAMESTATE_POINT(dq_of_state),
                                         SAMESTATE_POINT(dq_of_scores),
                                         SAMESTATE_POINT(dq_head),
                                         SAMESTATE_POINT(dk_of_state),
                                         SAMESTATE_POINT(dk_of_scores),
                                         SAMESTATE_POINT(dk_head),
                                         SAMESTATE_POINT(dT, true),
                                         SAMESTATE_POINT(dT_T, true),
                                         SAMESTATE_POINT(dA, true),
                                         SAMESTATE_POINT(dv_of_T, true),
                                         SAMESTATE_POINT(dk_of_T, true),
                                         SAMESTATE_POINT(dk_of_A, true),
                                         SAMESTATE_POINT(dk_of_A_transposed, true),
                                         SAMESTATE_POINT(beta_key, true),
                                         SAMESTATE_POINT(dk_correction, true),
                                         SAMESTATE_POINT(dv),
                                         named(BackwardPoint::group_sum, points::head_gradients["group_sum"]),
                                         named(BackwardPoint::dk, points::head_gradients["dk"], true),
                                         named(BackwardPoint::y, points::l2norm_backward["y"]),
                                         named(BackwardPoint::dy, points::l2norm_backward["dy"])};
#undef SAMESTATE_POINT

/// The reference on a call of one dense sequence, by the names of the inputs.
template <class System>
Inputs reference_of(const BackwardCall& x) {
  const auto [B, T, Hk, Hv, dk, dv, offsets] = x.forward.shape;
  // [T, H, D] -> [H] of [T, D]; a missing tensor is `other` everywhere.
  const auto heads = [T = T](const std::vector<float>& from, std::int64_t H, std::int64_t D,
                             double other = 0) {
    std::vector<Matrix<Rounding>> out(static_cast<std::size_t>(H),
                                      Matrix<Rounding>::Constant(T, D, Rounding(other)));
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      out[static_cast<std::size_t>(at / D % H)](at / (D * H), at % D) =
          Rounding(static_cast<double>(from[i]));
    }
    return out;
  };
  const auto states = [dk = dk, dv = dv, Hv = Hv](const std::vector<float>& from) {
    std::vector<Matrix<Rounding>> out(static_cast<std::size_t>(Hv), Matrix<Rounding>(dk, dv));
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      out[static_cast<std::size_t>(at / (dk * dv))](at / dv % dk, at % dv) =
          Rounding(static_cast<double>(from[i]));
    }
    return out;
  };
  Heads<Rounding> in{heads(x.forward.q, Hk, dk),
                     heads(x.forward.k, Hk, dk),
                     heads(x.forward.v, Hv, dv),
                     {},
                     {},
                     states(x.forward.initial_state),
                     key_heads_of(Hk, Hv, x.forward.head_map),
                     Rounding(static_cast<double>(x.forward.scale))};
  for (const auto& g : heads(x.forward.g, Hv, 1)) in.g.emplace_back(g.col(0));
  for (const auto& beta : heads(x.forward.beta, Hv, 1, 1)) in.beta.emplace_back(beta.col(0));
  std::vector<HeadCotangents<Rounding>> d;
  const auto d_o = heads(x.d_o, Hv, dv), d_state = states(x.d_final_state);
  for (std::size_t h = 0; h < d_o.size(); ++h) d.push_back({d_o[h], d_state[h]});
  const HeadsGradients<Rounding> got = heads_backward(
      in, d,
      [&](const auto& head, const auto& of) {
        return chunked_backward_parts<System>(head, of, x.forward.chunk);
      },
      x.forward.l2norm);

  Inputs out;
  const auto tokens = [&, T = T](const std::string& name, const auto& list) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (const auto& head : list) {
        for (Index c = 0; c < (head.size() == 0 ? 0 : head.cols()); ++c)
          out[name].push_back(head(t, c).value());
      }
    }
  };
  tokens("q", got.q), tokens("k", got.k), tokens("v", got.v), tokens("g", got.g), tokens("beta", got.beta);
  for (const auto& head : got.initial_state) {
    for (Index i = 0; i < head.size(); ++i) out["initial_state"].push_back(head.data()[i].value());
  }
  return out;
}

/// The largest distance of a gradient.
double distance(const Values& got, const Inputs& expected) {
  double worst = 0;
  for (const auto& [name, values] : expected) worst = std::max(worst, relative_error(got.at(name), values));
  return worst;
}

/// The contract with outputs in fp32: the reference does not mark what is written after the l2norm's gradient.
Contract with_fp32_ends(Contract contract) {
  contract.output = Format::fp32;
  return contract;
}

/// Leaves every point out in the kernel, in the reference and in both: where they agree on it, they are near each other. Adds
/// the points that change a gradient to `met`.
template <class System>
void expect_points(const cpu::System& system, const Contract& contract, bool stores, float (*round)(float),
                   std::set<BackwardPoint>& met) {
  for (const bool l2norm : {false, true}) {
    BackwardCall x =
        testing::make_backward_call(system.name, {.B = 1, .T = 13, .Hk = 1, .Hv = 2, .dk = 8, .dv = 6}, 5);
    x.forward.l2norm = l2norm;
    x.forward.scale = 0.375F;
    const Contract fp32_ends = with_fp32_ends(contract);
    const auto kernel = [&](const BackwardPoint* left_out) {
      const auto make = [&](const auto&... of) { return std::make_unique<LeavingOut>(of..., left_out); };
      EXPECT_EQ(cpu::run_chunked_backward_with(make, system, x.call(), fp32_ends).kind, Outcome::Kind::ran);
      return x.gradients;
    };
    const auto reference = [&](const PointRow* left_out) {
      Marks::result = stores ? round : nullptr;
      Marks::operands = stores ? nullptr : round;
      Marks::left_out = left_out;
      return reference_of<System>(x);
    };
    const Values all = kernel(nullptr);
    const Inputs marked = reference(nullptr);
    // A rounding to bf16 that falls the other way moves an element by a spacing of 2^-8.
    const double near = stores ? 1e-3 : 1e-4;
    EXPECT_LE(distance(all, marked), near) << system.name;
    for (const NamedPoint& p : kPoints) {
      if (!(stores ? p.stored : p.product) || (p.of_delta && !system.delta)) continue;
      if (!l2norm && (p.point == BackwardPoint::y || p.point == BackwardPoint::dy)) continue;
      const Values without = kernel(&p.point);
      const Inputs unmarked = reference(p.row);
      EXPECT_LE(distance(without, unmarked), near) << system.name << " " << p.row->name;
      // Where a value is stored at the next point again, leaving one out changes nothing.
      if (unmarked == marked) continue;
      met.insert(p.point);
      EXPECT_GT(distance(without, marked), 3 * distance(all, marked)) << system.name << " " << p.row->name;
      EXPECT_GT(distance(all, unmarked), 3 * distance(without, unmarked))
          << system.name << " " << p.row->name;
    }
  }
}

void expect_points_of_all(const Contract& contract, bool stores, float (*round)(float)) {
  std::set<BackwardPoint> met;
  expect_points<GatedDeltaRule>(cpu::GATED_DELTA_RULE, contract, stores, round, met);
  expect_points<DeltaRule>(cpu::DELTA_RULE, contract, stores, round, met);
  expect_points<Retention>(cpu::RETENTION, contract, stores, round, met);
  expect_points<LinearAttention>(cpu::LINEAR_ATTENTION, contract, stores, round, met);
  for (const NamedPoint& p : kPoints) {
    // The cotangents of a norm were stored before, as sums of a group or of two parts.
    const bool matters = (stores ? p.stored : p.product) && p.point != BackwardPoint::dy;
    EXPECT_EQ(met.contains(p.point), matters) << p.row->name;
  }
}

TEST(BackwardPoints, ResultsAreStoredWhereTheReferenceStoresThem) {
  expect_points_of_all(testing::bf16(), true, cpu::to_bf16);
  Contract fp16 = testing::bf16();
  fp16.input = Format::fp16;
  expect_points_of_all(fp16, true, cpu::to_fp16);
}

/// Points that only some kernels have: the reference follows them where a contract names them, and not elsewhere.
template <class System, class Kernel>
void expect_switched(const cpu::System& system, bool l2norm, const std::set<std::string_view>& switched) {
  BackwardCall x =
      testing::make_backward_call(system.name, {.B = 1, .T = 29, .Hk = 1, .Hv = 1, .dk = 8, .dv = 6}, 7);
  x.forward.scale = 0.375F;
  x.forward.l2norm = l2norm;
  const auto make = [](const auto&... of) { return std::make_unique<Kernel>(of...); };
  const Contract contract = with_fp32_ends(testing::bf16());
  ASSERT_EQ(cpu::run_chunked_backward_with(make, system, x.call(), contract).kind, Outcome::Kind::ran);
  const Values kernel = x.gradients;
  Marks::result = cpu::to_bf16, Marks::operands = nullptr, Marks::left_out = nullptr;
  const auto far = [&](const std::set<std::string_view>& points) {
    Marks::switched = points;
    const double d = distance(kernel, reference_of<System>(x));
    Marks::switched.clear();
    return d;
  };
  const double all = far(switched);
  EXPECT_LE(all, 1e-3) << system.name;
  for (const std::string_view point : switched) {
    std::set<std::string_view> others = switched;
    others.erase(point);
    EXPECT_GT(far(others), 3 * all) << system.name << " " << point;
  }
  EXPECT_GT(far({}), 3 * all) << system.name;
}

TEST(BackwardPoints, ScalesMayMultiplyTheProductsOfRoundedScores) {
  expect_switched<DeltaRule, ScalesProducts>(cpu::DELTA_RULE, false, {"dS_unscaled", "dS_score"});
  expect_switched<LinearAttention, ScalesProducts>(cpu::LINEAR_ATTENTION, false,
                                                   {"dS_unscaled", "dS_score", "q_scaled", "dv_local"});
}

TEST(BackwardPoints, ANormOfItsOwnMayStoreWhatTheRuleReads) {
  expect_switched<GatedDeltaRule, NormalisesApart>(cpu::GATED_DELTA_RULE, true, {"operand"});
  expect_switched<DeltaRule, NormalisesApart>(cpu::DELTA_RULE, true, {"operand"});
}

TEST(BackwardPoints, OperandsAreRoundedWhereTheReferenceRoundsThem) {
  Contract tf32;
  tf32.qk = Format::tf32;
  expect_points_of_all(tf32, false, cpu::to_tf32);
}

}  // namespace
}  // namespace samestate
