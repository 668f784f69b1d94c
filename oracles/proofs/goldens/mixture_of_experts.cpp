#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/layers/qwen3_next_moe.h"
#include "reference/error.h"
#include "reference/layers/qwen3_next_moe.h"
#include "reference/load_balance.h"

namespace samestate::mixture_of_experts_golden {
namespace {

constexpr std::pair<ExpertForm, std::string_view> kForms[] = {{ExpertForm::loop, "expert loop"},
                                                              {ExpertForm::dense, "dense masked sum"},
                                                              {ExpertForm::sorted, "sorted by expert"},
                                                              {ExpertForm::per_token, "per token"}};

/// The public block computes softmax, top-k and renormalisation in float32, whatever the model's type, so its
/// hidden_out has weights that are float32 numbers. Their relative distance to the exact weights, first order
/// in u = 2^-24: casting and subtracting logits of size L moves an exponent by 4 L u, exp is right to 2 u,
/// the division to 2 u; a quotient by a sum of n such numbers doubles that and adds n u.
double float32_router_error(const Matrix<double>& logits, Index n) {
  const double largest = logits.size() == 0 ? 0.0 : logits.cwiseAbs().maxCoeff<Eigen::PropagateNaN>();
  return (2.0 * (4.0 * largest + 4.0) + static_cast<double>(n)) * 0x1p-24;
}

Qwen3NextMoeWeights<double> weights_of(const GoldenSource& s, Index D, Index N) {
  s.require_shape("w.gate.weight", {N, D});
  s.require_shape("w.experts.gate_up_proj", {N, -1, D});
  const Index F = s.tensor("w.experts.gate_up_proj").shape[1] / 2;
  s.require_shape("w.experts.gate_up_proj", {N, 2 * F, D});
  s.require_shape("w.experts.down_proj", {N, D, F});
  s.require_shape("w.shared_expert.gate_proj.weight", {-1, D});
  const Index shared = s.tensor("w.shared_expert.gate_proj.weight").shape[0];
  s.require_shape("w.shared_expert.up_proj.weight", {shared, D});
  s.require_shape("w.shared_expert.down_proj.weight", {D, shared});
  s.require_shape("w.shared_expert_gate.weight", {1, D});

  Qwen3NextMoeWeights<double> w;
  w.router = s.matrix("w.gate.weight");
  for (Index i = 0; i < N; ++i) {
    const Matrix<double> gate_up = s.matrix("w.experts.gate_up_proj", i);
    w.experts.push_back({gate_up.topRows(F), gate_up.bottomRows(F), s.matrix("w.experts.down_proj", i)});
  }
  w.shared = {s.matrix("w.shared_expert.gate_proj.weight"), s.matrix("w.shared_expert.up_proj.weight"),
              s.matrix("w.shared_expert.down_proj.weight")};
  w.shared_gate = s.matrix("w.shared_expert_gate.weight");
  return w;
}

/// The weights with which the golden output was summed: per token the least-squares solution of
///   hidden_out - gate * shared = sum_r w_r E_r,
/// D equations for K unknowns, to the nearest float32. [T, K].
Matrix<double> golden_weights(const GoldenSource& s, const Matrix<double>& x,
                              const Qwen3NextMoeWeights<double>& weights, const Qwen3NextMoe<double>& own) {
  const Matrix<Index>& experts = own.routing.experts;
  const Matrix<double> routed =
      s.matrix("hidden_out") - Matrix<double>(own.gate.col(0).asDiagonal() * own.shared);
  Matrix<double> found(experts.rows(), experts.cols());
  for (Index t = 0; t < experts.rows(); ++t) {
    const Matrix<double> token = x.row(t);
    Matrix<double> outputs(x.cols(), experts.cols());
    for (Index r = 0; r < experts.cols(); ++r) {
      outputs.col(r) = weights.experts[static_cast<std::size_t>(experts(t, r))](token).transpose();
    }
    found.row(t) = outputs.colPivHouseholderQr().solve(routed.row(t).transpose()).transpose();
  }
  return found.cast<float>().cast<double>();
}

/// Compares the weights in the golden with ours, within the error of a float32 router.
void check_weights(const GoldenSource& s, const Matrix<double>& golden, const Routing<double>& own) {
  double worst = 0.0;
  for (Index i = 0; i < golden.size(); ++i) {
    const double d = std::abs(own.weights.data()[i] - golden.data()[i]) / std::abs(golden.data()[i]);
    worst = d <= std::numeric_limits<double>::max() ? std::max(worst, d)
                                                    : std::numeric_limits<double>::infinity();
  }
  const double limit = float32_router_error(own.logits, own.experts.cols());
  s.report.checks.push_back({s.file_name, s.group, "hidden_out", "its router weights, which are float32",
                             worst, limit, worst <= limit});
}

}  // namespace

void check(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const std::vector<std::int64_t>& shape = s.tensor("hidden_in").shape;
  const Index tokens = shape[0] * shape[1];
  const Index N = s.integer("num_experts");
  const Index K = s.integer("top_k");
  s.require_shape("hidden_out", {shape[0], shape[1], shape[2]});
  s.require_shape("router_logits", {tokens, N});
  s.require_shape("aux_loss", {});
  const Qwen3NextMoeWeights<double> weights = weights_of(s, shape[2], N);
  const Matrix<double> x = s.matrix("hidden_in");

  if (shape[2] <= K) {
    throw Error(s.file_name + ": group " + s.group + ": " + std::to_string(shape[2]) +
                " columns cannot show the weights of " + std::to_string(K) +
                " experts; more columns are needed");
  }

  const Qwen3NextMoe<double> own = qwen3_next_moe(x, weights, K);
  // A flip of a near tie would not be an error of either code (EQUATIONS 8.2), so the group must not contain
  // one.
  const Vector<double> gap = selection_gap(own.routing.probabilities, K);
  const double least_gap = 2.0 * float32_router_error(own.routing.logits, N);
  for (Index t = 0; t < tokens; ++t) {
    if (!(gap(t) > least_gap)) {
      throw Error(
          s.file_name + ": group " + s.group + ": token " + std::to_string(t) +
          " is a near tie of its experts, which a float32 router may break differently; leave it out");
    }
  }
  s.check("router_logits", "router", own.routing.logits);
  // The public code sums the fractions of all ranks, in the model's type, and leaves alpha to the caller.
  s.check("aux_loss", "fractions of tokens, alpha = 1",
          auxiliary_loss(own.routing.probabilities, own.routing.experts, 1.0, LoadFraction::token));

  Routing<double> injected = own.routing;
  injected.weights = golden_weights(s, x, weights, own);
  check_weights(s, injected.weights, own.routing);
  for (const auto& [form, name] : kForms) {
    s.check("hidden_out", std::string(name) + ", those weights injected",
            qwen3_next_moe_routed(x, weights, injected, form).y);
  }
}

void check_backward(const GoldenSource& s) {
  s.require_shape("hidden_in", {-1, -1, -1});
  const std::vector<std::int64_t> shape = s.tensor("hidden_in").shape;
  s.require_shape("d.hidden_out", {shape[0], shape[1], shape[2]});
  const Index N = s.integer("num_experts"), K = s.integer("top_k");
  const Qwen3NextMoeWeights<double> weights = weights_of(s, shape[2], N);
  const Matrix<double> x = s.matrix("hidden_in");
  // The gradients were made with the router in float64, unlike the output of the forward group.
  const Routing<double> routing = qwen3_next_moe(x, weights, K).routing;
  const Qwen3NextMoeGradients<double> mine =
      qwen3_next_moe_backward(x, weights, routing, TopKWeights::renormalised, s.matrix("d.hidden_out"));
  s.check("d.hidden_in", "reverse", mine.x);
  s.check("d.w.gate.weight", "reverse", mine.weights.router);
  const Index F = weights.experts.front().gate.rows();
  Matrix<double> gate_up(2 * F * N, shape[2]), down(shape[2] * N, F);
  for (Index n = 0; n < N; ++n) {
    const SwiGluExpert<double>& d = mine.weights.experts[static_cast<std::size_t>(n)];
    gate_up.middleRows(2 * F * n, F) = d.gate;
    gate_up.middleRows(2 * F * n + F, F) = d.up;
    down.middleRows(shape[2] * n, shape[2]) = d.down;
  }
  s.check("d.w.experts.gate_up_proj", "reverse", gate_up);
  s.check("d.w.experts.down_proj", "reverse", down);
  s.check("d.w.shared_expert.gate_proj.weight", "reverse", mine.weights.shared.gate);
  s.check("d.w.shared_expert.up_proj.weight", "reverse", mine.weights.shared.up);
  s.check("d.w.shared_expert.down_proj.weight", "reverse", mine.weights.shared.down);
  s.check("d.w.shared_expert_gate.weight", "reverse", mine.weights.shared_gate);
}

}  // namespace samestate::mixture_of_experts_golden
