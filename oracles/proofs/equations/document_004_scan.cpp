#include <cmath>
#include <set>
#include <sstream>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "reference/costs.h"
#include "reference/layers/mamba.h"
#include "reference/selective_scan_parallel.h"
#include "reference/test_time_training.h"

/// Document 004: state space models.
namespace samestate::document_004_scan_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;
using Vec = Vector<double>;

/// A scan of 11 tokens, 3 channels, 2 states a channel, with skip and gate.
SelectiveScan<double> drawn_scan() {
  IdentityDraw<double> draw(1);
  SelectiveScan<double> x;
  x.u = draw.normal(11, 3);
  x.delta = M(11, 3);
  for (Index i = 0; i < x.delta.size(); ++i) x.delta.data()[i] = draw.uniform(0.1, 1.0);
  x.A = decay_rates(draw.normal(3, 2, 0.5));
  x.B = draw.normal(11, 2);
  x.C = draw.normal(11, 2);
  x.skip = draw.normal_vector(3);
  x.z = draw.normal(11, 3);
  x.initial_state = M::Zero(3, 2);
  return x;
}

/// A block of width 3, inner width 6, 2 states, step of rank 2.
struct SmallBlock {
  MambaWeights<double> weights;
  M x;
  MambaOutput<double> out;
  SmallBlock() {
    IdentityDraw<double> draw(2);
    weights.in_proj = draw.normal(12, 3);
    weights.conv1d = draw.normal(6, 4, 0.5);
    weights.conv1d_bias = draw.normal_vector(6, 0.1);
    weights.x_proj = draw.normal(6, 6, 0.5);
    weights.dt_proj = draw.normal(6, 2, 0.5);
    weights.dt_bias = draw.normal_vector(6, 0.5);
    weights.A_log = draw.normal(6, 2, 0.5);
    weights.skip = draw.normal_vector(6);
    weights.out_proj = draw.normal(3, 6);
    x = draw.normal(9, 3);
    out = mamba(x, weights, empty_mamba_cache(weights));
  }
};

constexpr auto kEuler = Discretisation::euler;
constexpr auto kHold = Discretisation::zero_order_hold;

Finding parallel_scans(const char* what) {
  const SelectiveScan<double> x = drawn_scan();
  const SelectiveScanOutput<double> loop = selective_scan_recurrent(x, kEuler);
  return Computation()
      .agree("Hillis-Steele, and the loop", selective_scan_hillis_steele(x, kEuler).out, loop.out)
      .agree("Blelloch", selective_scan_blelloch(x, kEuler).out, loop.out)
      .agree("chunks of 4", selective_scan_chunked(x, kEuler, 4).out, loop.out)
      .count("depth of a scan of 11 tokens", costs::scan_depth(11), 4)
      .remark(what)
      .identity("scan_hillis_steele")
      .identity("scan_blelloch")
      .holds();
}

Finding selected_parameters() {
  const SmallBlock block;
  M x = block.x;
  x.row(4) *= 2.0;
  const MambaOutput<double> other = mamba(x, block.weights, empty_mamba_cache(block.weights));
  return Computation()
      .contrast_all("Delta of token 4, and at twice its input", other.delta.row(4).eval(),
                    block.out.delta.row(4).eval())
      .contrast_all("B", other.B.row(4).eval(), block.out.B.row(4).eval())
      .contrast_all("C", other.C.row(4).eval(), block.out.C.row(4).eval())
      .identical("Delta of the tokens before", other.delta.topRows(4).eval(),
                 block.out.delta.topRows(4).eval())
      .holds();
}

Finding decay_parameters() {
  M A_log(1, 16);
  M expected(1, 16);
  for (Index n = 0; n < 16; ++n) {
    A_log(0, n) = std::log(static_cast<double>(n + 1));
    expected(0, n) = -static_cast<double>(n + 1);
  }
  return Computation()
      .agree("A = -exp(log(1..16)) = -1..-16", decay_rates(A_log), expected)
      .count("entries upstream, [d_inner, 16] at d = 64, d_inner = 128",
             costs::shape(costs::SelectiveScanConfig{64, 16, 2, 4, false}).state, 128 * 16)
      .remark("missing: the sign, and one row a channel")
      .resolved();
}

/// The attributes of self that the sketch L198-209 assigns and reads, in its own words.
Finding unset_attribute() {
  const std::string sketch =
      "self.in_proj = Linear self.x_proj = Linear self.A_log = Parameter states = zeros(batch, dim, "
      "self.d_state)";
  std::set<std::string> assigned;
  std::set<std::string> missing;
  for (std::size_t at = sketch.find("self."); at != sketch.npos; at = sketch.find("self.", at + 1)) {
    const std::size_t begin = at + 5;
    const std::size_t end = sketch.find_first_of(" )", begin);
    const std::string name = sketch.substr(begin, end - begin);
    if (sketch.compare(end, 3, " = ") == 0) {
      assigned.insert(name);
    } else if (!assigned.contains(name)) {
      missing.insert(name);
    }
  }
  return Computation()
      .count("attributes assigned", static_cast<std::int64_t>(assigned.size()), 3)
      .relation("d_state is read and was not assigned", missing == std::set<std::string>{"d_state"})
      .contrast("states of [2, L, 64]", "AttributeError", text_of({2, 64, 16}))
      .count("elements a sequence, d x 16",
             costs::shape(costs::SelectiveScanConfig{64, 16, 1, 4, true}).state, 64 * 16)
      .erratum();
}

Finding discretised_state() {
  SelectiveScan<double> x;
  x.u = M::Ones(1, 1);
  x.delta = M::Ones(1, 1);
  x.A = M::Constant(1, 1, -1.0);
  x.B = M::Ones(1, 1);
  x.C = M::Ones(1, 1);
  x.initial_state = M::Zero(1, 1);
  const double euler = selective_scan_recurrent(x, kEuler).state(0, 0);
  const double hold = selective_scan_recurrent(x, kHold).state(0, 0);
  SelectiveScan<double> ten = x;
  ten.u = M::Zero(10, 1);
  ten.delta = ten.B = ten.C = M::Ones(10, 1);
  ten.A(0, 0) = -2.0;
  ten.initial_state(0, 0) = 1.0;
  const double kept = selective_scan_recurrent(ten, kEuler).state(0, 0);
  return Computation()
      .rounds_to("Delta = 1, A = -1: B-bar, zero-order hold", hold, 0.632, 3)
      .equal("Euler, as implemented", euler, 1.0)
      .contrast_all("B-bar, the two modes", row_of({hold}), row_of({euler}))
      .equal("A = -2, Delta = 1, ten tokens without input, from 1", kept, std::exp(-20.0))
      .contrast("h = A h as printed", std::pow(-2.0, 10), kept)
      .equal("ten tokens at A = -2 as printed: growth, and a sign that flips every token", std::pow(-2.0, 10),
             1024.0)
      .remark("missing: the discretisation")
      .identity("scan_raw_rate")
      .identity("scan_hold_for_euler")
      .resolved();
}

Finding skip_and_gate() {
  const SelectiveScan<double> x = drawn_scan();
  SelectiveScan<double> bare = x;
  bare.skip.resize(0);
  bare.z.resize(0, 0);
  const M printed = selective_scan_recurrent(bare, kEuler).out;
  const M correct = selective_scan_recurrent(x, kEuler).out;
  const M full = (printed + x.u * x.skip.asDiagonal()).cwiseProduct(silu(x.z));
  return Computation()
      .contrast_all("y = C h, and with skip and gate", printed, correct)
      .agree("(C h + D u) silu(z), the skip before the gate", full, correct)
      .contrast_all("the skip after the gate",
                    (printed.cwiseProduct(silu(x.z)) + x.u * x.skip.asDiagonal()).eval(), correct)
      .identity("scan_skip_after_gate")
      .resolved();
}

Finding placeholder() {
  const SmallBlock block;
  const M again = mamba_resumed(block.x, block.weights, empty_mamba_cache(block.weights),
                                {1, 2, 3, 4, 5, 6, 7, 8}, selective_scan_recurrent<double>)
                      .out;
  return Computation()
      .contrast_all("the placeholder's output x, and the block's", block.x, block.out.out)
      .agree("the block in one pass and token by token", again, block.out.out)
      .remark("resolution: EQUATIONS 5.10")
      .identity("mamba_decode")
      .resolved();
}

Finding loop_that_trains() {
  const SelectiveScan<double> x = drawn_scan();
  const auto loss = [&](const auto& A) {
    using Scalar = typename std::decay_t<decltype(A)>::Scalar;
    const auto cast = [](const auto& m) { return m.template cast<Scalar>().eval(); };
    const SelectiveScan<Scalar> y{cast(x.u), cast(x.delta), A,         cast(x.B),
                                  cast(x.C), cast(x.skip),  cast(x.z), cast(x.initial_state)};
    const Matrix<Scalar> out = selective_scan_recurrent(y, kEuler).out;
    return Scalar(Scalar(0.5) * out.cwiseProduct(out).sum());
  };
  const M gradient = gradient_by_dual_numbers<double>(loss, x.A);
  const M differences = gradient_by_central_differences<double>(loss, x.A, 1e-5);
  const double before = loss(x.A);
  const double after = loss(gradient_step(x.A, gradient, 0.01));
  return Computation()
      .relation(
          "the gradient through the loop, by automatic differentiation, is that of central differences to "
          "1e-6",
          relative_difference(gradient, differences) < 1e-6)
      .contrast("loss after one step of learning, if a loop could not train, and as it does", before, after)
      .relation("the step lowers the loss", after < before)
      .remark("Mamba-1's scan is CUDA C++; Triton serves its decode step and Mamba-2")
      .erratum();
}

const Equation kRows[] = {
    {"SSM-1", "004", "L179", "costs", "attention O(N^2)", V::ok,
     [] {
       const auto flops = [](costs::Count N) { return costs::softmax_attention_flops(N, 8, 64, 64); };
       return Computation().count("operations at 2 N over N", flops(8192) / flops(4096), 4).holds();
     }},
    {"SSM-2", "004", "L180", "selective_scan", "RNNs cannot be trained in parallel", V::ok_qualified,
     [] { return parallel_scans("true of nonlinear RNNs; linear recurrences scan"); }},
    {"SSM-3", "004", "L181", "selective_scan", "Mamba: O(1) inference, parallel training", V::ok_qualified,
     [] {
       const SelectiveScan<double> x = drawn_scan();
       SelectiveScanOutput<double> out{M(11, 3), M(11, 3), x.initial_state};
       for (Index t = 0; t < 11; ++t) selective_scan_step(x, t, kEuler, out.state, out);
       return Computation()
           .identical("decode from a state of 3 x 2 numbers, and the loop", out.out,
                      selective_scan_recurrent(x, kEuler).out)
           .count("depth of a scan of 4096 tokens", costs::scan_depth(4096), 12)
           .count("of 8192", costs::scan_depth(8192), 13)
           .holds();
     }},
    {"SSM-4", "004", "L186-188", "selective_scan", "Delta, B, C depend on x_t", V::ok, selected_parameters},
    {"SSM-5", "004", "L200", "selective_scan", "in_proj: d -> 2 d", V::ok_qualified,
     [] {
       const SmallBlock block;
       return Computation()
           .count("columns at d_inner = d = 64",
                  costs::shape(costs::SelectiveScanConfig{64, 16, 1, 4, true}).input, 2 * 64)
           .count("upstream, d_inner = 2 d",
                  costs::shape(costs::SelectiveScanConfig{64, 16, 2, 4, false}).input, 4 * 64)
           .count("of the small block, x and z", block.out.mixed.cols() + block.out.z.cols(),
                  block.weights.in_proj.rows())
           .holds();
     }},
    {"SSM-6", "004", "L201", "selective_scan", "x_proj: d -> d + 2 d_state", V::ok_qualified,
     [] {
       return Computation()
           .count("columns at d = 64, full-rank Delta",
                  costs::shape(costs::SelectiveScanConfig{64, 16, 1, 4, true}).selected, 64 + 2 * 16)
           .count("upstream, dt_rank = ceil(d / 16)",
                  costs::shape(costs::SelectiveScanConfig{64, 16, 2, 4, false}).selected, 4 + 2 * 16)
           .holds();
     }},
    {"SSM-7", "004", "L204", "selective_scan", "A_log = log(1..d_state)", V::incomplete, decay_parameters},
    {"SSM-8", "004", "L208-209", "selective_scan", "states = zeros(b, dim, self.d_state)", V::erratum,
     unset_attribute},
    {"SSM-9", "004", "L217", "selective_scan", "h_t = A h_{t-1} + B x_t", V::incomplete, discretised_state},
    {"SSM-10", "004", "L218", "selective_scan", "y_t = C h_t", V::incomplete, skip_and_gate},
    {"SSM-11", "004", "L206-222", "selective_scan", "forward is a placeholder that returns x", V::incomplete,
     placeholder},
    {"SSM-12", "004", "L220,225", "selective_scan",
     "complete version needs a CUDA kernel; training relies on a Triton scan, a Python loop cannot train",
     V::erratum, loop_that_trains},
    {"SSM-13", "004", "L3,231-233", "selective_scan", "chapter framing and summary", V::untestable,
     [] { return Computation().untestable("opinion"); }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_004_scan_equations
