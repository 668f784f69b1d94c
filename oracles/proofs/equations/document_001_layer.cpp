#include <cmath>
#include <limits>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/model.h"
#include "oracles/proofs/equations/rearrange.h"
#include "oracles/proofs/equations/small_layer.h"
#include "reference/costs.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/layers/gated_delta_net.h"

/// Document 001: the walk through public code of Qwen3-Next, up to the gates.
namespace samestate::document_001_layer_equations {
namespace {

using V = LedgerVerdict;
using namespace equation_model;

Finding order_of_the_layer() {
  const SmallLayer layer;
  IdentityDraw<double> draw(2);
  const Matrix<double> x = draw.normal(4, 3);
  const Vector<double> zero = Vector<double>::Zero(3);
  Sequence<double> head = from_zero_state(drawn_sequence(6, 4, 3));
  const Vector<double> one = Vector<double>::Ones(3);
  const Matrix<double> after = rms_norm(recurrent<GatedDeltaRule>(head).o, one, 1e-6);
  head.v = rms_norm(head.v, one, 1e-6);
  const GatedDeltaNetProjections<double> p = layer.projections();
  const Matrix<double> gated = layer.out.gated.middleCols(2, 2);
  const Matrix<double> expected = rms_norm<double>(layer.out.core.middleCols(2, 2), layer.weights.norm, 1e-6)
                                      .cwiseProduct(silu<double>(p.z.middleCols(2, 2)));
  return Computation()
      .contrast_all("norm before the rule, and after it", recurrent<GatedDeltaRule>(head).o, after)
      .contrast_all("zero-centred and plain norm at w = 0", rms_norm_zero_centred(x, zero, 1e-6),
                    rms_norm(x, zero, 1e-6))
      .agree("the layer's factor after the norm is silu(z), of value head 1", gated, expected)
      .contrast("input matrix products", 5.0, 2.0)
      .count("columns of the two, for q, k, v, z and b, a",
             layer.weights.in_proj_qkvz.rows() + layer.weights.in_proj_ba.rows(), 6 + 6 + 8 + 8 + 4 + 4)
      .erratum();
}

/// y_t = silu(sum_j w_j x_{t-3+j}) as public code computes it: padded by W - 1 on both sides, first s kept.
Matrix<double> padded_convolution(const Matrix<double>& x, const Matrix<double>& kernel) {
  const Index pad = kernel.cols() - 1;
  Matrix<double> padded = Matrix<double>::Zero(x.rows() + 2 * pad, x.cols());
  padded.middleRows(pad, x.rows()) = x;
  Matrix<double> y(x.rows() + pad, x.cols());
  for (Index t = 0; t < y.rows(); ++t) {
    for (Index c = 0; c < x.cols(); ++c) {
      double sum = 0.0;
      for (Index j = 0; j < kernel.cols(); ++j) sum += kernel(c, j) * padded(t + j, c);
      y(t, c) = sum;
    }
  }
  return silu(y).topRows(x.rows());
}

/// The state in public code, pad(x, (W - s, 0)) along time: zeros on the left, or a crop if negative.
Matrix<double> padded_state(const Matrix<double>& x, Index W) {
  Matrix<double> state = Matrix<double>::Zero(W, x.cols());
  const Index kept = std::min(W, x.rows());
  state.bottomRows(kept) = x.bottomRows(kept);
  return state;
}

/// A convolution of 9 tokens and 3 channels, width 4.
struct ConvolutionCase {
  Matrix<double> x, kernel, state;
  Convolved<double> out;
  ConvolutionCase() {
    IdentityDraw<double> draw(1);
    x = draw.normal(9, 3);
    kernel = draw.normal(3, 4);
    state = empty_convolution_state<double>(4, 3);
    out = short_convolution(x, kernel, {}, state);
  }
};

Finding convolution_history() {
  const ConvolutionCase c;
  Matrix<double> one = c.out.y;
  Matrix<double> three = c.out.y;
  for (Index t = 3; t < 9; ++t) {
    Matrix<double> past = c.x.middleRows(t - 3, 3);
    three.row(t) = short_convolution<double>(c.x.row(t), c.kernel, {}, past).y;
    past.topRows(2).setZero();  // a stride's worth: one vector
    one.row(t) = short_convolution<double>(c.x.row(t), c.kernel, {}, past).y;
  }
  return Computation()
      .contrast("vectors to store", 1.0, static_cast<double>(kModel.convolution_width - 1))
      .contrast_all("decode with one past vector, and prefill", one, c.out.y)
      .identical("decode with three", three, c.out.y)
      .count("numbers of the stored state of width 4", costs::convolution_cache_elements(kModel, 4), 32768)
      .identity("convolution_decode")
      .identity("convolution_one_vector_cache")
      .erratum();
}

Finding convolution_state() {
  const ConvolutionCase c;
  const Matrix<double> two = c.x.topRows(2);
  const Matrix<double> none = Matrix<double>::Zero(3, 4);
  return Computation()
      .identical("s = 2 < W: zeros on the left",
                 stored_convolution_state<double>(none, two).transpose().eval(), padded_state(two, 4))
      .identical("s = 9 >= W: the last W", stored_convolution_state<double>(none, c.x).transpose().eval(),
                 padded_state(c.x, 4))
      .identical("its last W - 1 are inputs before the convolution", c.out.state, padded_state(c.x, 3))
      .count("channels", kShape.convolved, 8192)
      .identity("convolution_state_of_width_w")
      .identity("convolution_outputs_as_state")
      .holds();
}

Finding default_time_steps() {
  const Vector<double> one = Vector<double>::Ones(1);
  const Vector<double> largest = Vector<double>::Constant(1, std::log(16.0));
  const Vector<double> inverse = Vector<double>::Constant(1, std::log(std::expm1(0.1)));
  return Computation()
      .rounds_to("softplus(1)", softplus(1.0), 1.3133, 4)
      .rounds_to("g at a = 0, A = 16, dt_bias = 1", log_decay(row_of({0.0}), largest, one)(0, 0), -21.0, 1)
      .equal("softplus of the other init, log(expm1(0.1))", softplus(inverse(0)), 0.1)
      .equal("its g at a = 0, A = 16", log_decay(row_of({0.0}), largest, inverse)(0, 0), -1.6)
      .holds();
}

Finding no_decay() {
  const Vector<double> none = Vector<double>::Constant(1, -std::numeric_limits<double>::infinity());
  const double g = log_decay(row_of({3.0}), none, Vector<double>::Ones(1).eval())(0, 0);
  return Computation()
      .equal("A = 0, A_log = -inf: g", g, 0.0)
      .equal("alpha", std::exp(g), 1.0)
      .relation("A just below 16: exp(A_log) < 16", std::exp(std::log(15.999)) < 16.0)
      .holds();
}

const Equation kRows[] = {
    {"CFG-5", "001", "L7", "qwen3_next", "48 layers in 12 groups of 4", V::ok,
     [] {
       return Computation()
           .count("layers", costs::product({12, 4}), kModel.layers)
           .count("attention layers", kShape.attention_layers, 12)
           .holds();
     }},
    {"CFG-6", "001", "L9", "qwen3_next", "layers 1-3 of a group are Gated DeltaNet: faster, less memory",
     V::untestable,
     [] {
       Computation c;
       for (const costs::Count layer : {0, 1, 2})
         c.relation("layer " + std::to_string(layer + 1) + " is Gated DeltaNet",
                    !costs::is_full_attention(kModel, layer));
       return c.untestable("how fast a layer is has to be measured");
     }},
    {"GATT-2", "001", "L10", "gated_attention",
     "layer 4 of a group: full softmax attention with an extra gate at the output", V::incomplete,
     [] {
       return Computation()
           .relation("layer 4 of a group is attention", costs::is_full_attention(kModel, 3))
           .equal("sigma(0), the gate that halves", logistic(0.0), 0.5)
           .count("columns of q_proj: queries and one gate each", costs::product({2, kShape.query_dim}), 8192)
           .remark("resolution: elementwise sigma(gate) on the attention output, before o_proj")
           .identity("gated_attention_zero_gate")
           .identity("gated_attention_silu_gate")
           .resolved();
     }},
    {"GDN-21", "001", "L16-23", "gated_delta_net",
     "5 matmuls; conv1d; SiLU; rule; zero-centred RMSNorm on the rule's INPUT; product with [blank]",
     V::erratum, order_of_the_layer},
    {"CFG-7", "001", "L63-68", "qwen3_next", "key_dim = d_k n_k, value_dim = d_v n_v", V::ok,
     [] {
       return Computation()
           .count("key_dim", kShape.key_dim, 2048)
           .count("value_dim", kShape.value_dim, 4096)
           .holds();
     }},
    {"COST-5", "001", "L70-74", "costs", "proj_qkvz = 2 key_dim + 2 value_dim; proj_ba = 2 n_v; no bias",
     V::ok,
     [] {
       return Computation()
           .count("qkvz", kShape.projection_qkvz, 12288)
           .count("ba", kShape.projection_ba, 64)
           .holds();
     }},
    {"GDN-22", "001", "L76-79", "gated_delta_net", "hidden -> qkvz [b, s, 12288], ba [b, s, 64]", V::ok,
     [] {
       return Computation()
           .shape("qkvz",
                  einsum_shape("bsc,cd->bsd",
                               {{kBatch, kLength, kModel.hidden}, {kModel.hidden, kShape.projection_qkvz}}),
                  {kBatch, kLength, 12288})
           .shape("ba",
                  einsum_shape("bsc,cd->bsd",
                               {{kBatch, kLength, kModel.hidden}, {kModel.hidden, kShape.projection_ba}}),
                  {kBatch, kLength, 64})
           .holds();
     }},
    {"GDN-23", "001", "L81-86", "gated_delta_net", "flat split [key, key, value, value] of qkvz",
     V::ambiguous,
     [] {
       const GatedDeltaNetShape model{kModel.key_heads, kModel.value_heads, kModel.key_width,
                                      kModel.value_width};
       const std::vector<Index> rows = grouped_rows(model).qkvz;
       return Computation()
           .count("rows of a key head upstream, 128 + 128 + 256 + 256", rows[128] - rows[0], 768)
           .contrast("row of k of key head 0 in the weights", 2048.0, static_cast<double>(rows[2048]))
           .contrast("row of z of value head 0", 8192.0, static_cast<double>(rows[8192]))
           .remark("resolution: grouped; flat after a fixed permutation of the rows")
           .resolved();
     }},
    {"GDN-24", "001", "L88-92", "gated_delta_net", "flat split of ba into b, a", V::ambiguous,
     [] {
       const GatedDeltaNetShape model{kModel.key_heads, kModel.value_heads, kModel.key_width,
                                      kModel.value_width};
       const std::vector<Index> rows = grouped_rows(model).ba;
       return Computation()
           .count("rows of a key head upstream, 2 + 2", rows[2] - rows[0], 4)
           .contrast("row of a of value head 0 in the weights", 32.0, static_cast<double>(rows[32]))
           .remark("resolution: grouped, as GDN-23")
           .resolved();
     }},
    {"CONV-2", "001", "L104-107", "short_convolution", "mixed = cat(q, k, v), channels first: [b, 8192, s]",
     V::ok,
     [] {
       const SmallLayer layer;
       return Computation()
           .count("channels", costs::sum({kShape.key_dim, kShape.key_dim, kShape.value_dim}), 8192)
           .shape("b s c -> b c s",
                  Rearrangement("b s c -> b c s", {kBatch, kLength, kShape.convolved}).shape(),
                  {kBatch, 8192, kLength})
           .count("channels of the small layer, 2 x 6 + 8", layer.out.mixed.cols(), 20)
           .holds();
     }},
    {"CONV-3", "001", "L109-111", "short_convolution", "silu(conv1d(mixed)[:, :, :s])", V::ok_qualified,
     [] {
       const ConvolutionCase c;
       return Computation()
           .agree("padded by 3 on both sides, first s kept; no kernel flip",
                  padded_convolution(c.x, c.kernel), c.out.y)
           .identity("convolution_padded_both_sides")
           .identity("convolution_flipped_kernel")
           .holds();
     }},
    {"CONV-4", "001", "L113", "short_convolution",
     "decode only needs to store feature vectors of the STRIDE size", V::erratum, convolution_history},
    {"CONV-5", "001", "L120-121", "short_convolution", "conv_state = pad(mixed, (W - s, 0)), [b, 8192, 4]",
     V::ok_qualified, convolution_state},
    {"CONV-6", "001", "L122", "short_convolution", "silu(conv1d(mixed)[:, :, :s]), after the state is stored",
     V::ok,
     [] {
       const ConvolutionCase c;
       const Convolved<double> first = short_convolution<double>(c.x.topRows(2), c.kernel, {}, c.state);
       const Convolved<double> rest = short_convolution<double>(c.x.bottomRows(7), c.kernel, {}, first.state);
       Matrix<double> both(9, 3);
       both << first.y, rest.y;
       return Computation()
           .identical("prefill of 2 and 7 tokens, and of 9", both, c.out.y)
           .identity("convolution_any_split")
           .holds();
     }},
    {"GDN-25", "001", "L142-153", "gated_delta_net",
     "split and reshape: q, k [b, s, 16, 128], v [b, s, 32, 128]", V::ok,
     [] {
       const auto heads = [](costs::Count channels) {
         return Rearrangement("b s (h d) -> b s h d", {kBatch, kLength, channels}, {{"d", 128}}).shape();
       };
       return Computation()
           .shape("q, k", heads(kShape.key_dim), {kBatch, kLength, 16, 128})
           .shape("v", heads(kShape.convolved - 2 * kShape.key_dim), {kBatch, kLength, 32, 128})
           .holds();
     }},
    {"GDN-26", "001", "L154-157", "gated_delta_net",
     "if n_v // n_k > 1: q, k <- repeat_interleave(2, head axis)", V::ok,
     [] {
       const GatedDeltaNetShape model{kModel.key_heads, kModel.value_heads, kModel.key_width,
                                      kModel.value_width};
       Extents map;
       for (Index h = 0; h < 6; ++h) map.push_back(model.key_head(h));
       return Computation()
           .count("n_v // n_k", kShape.head_repeat, 2)
           .shape("key heads of value heads 0..5", map,
                  Rearrangement("h -> (h r)", {3}, {{"r", kShape.head_repeat}}).sources())
           .holds();
     }},
    {"GDN-27", "001", "L172", "gates", "dt_bias = ones(n_v)", V::ok_qualified, default_time_steps},
    {"GDN-28", "001", "L173-174", "gates", "A ~ U(0, 16), A_log = log A", V::ok_qualified, no_decay},
    {"GDN-29", "001", "L175", "gates", "g = -exp(A_log) softplus(a + dt_bias)", V::ok,
     [] {
       const SmallLayer layer;
       const GatedDeltaNetProjections<double> p = layer.projections();
       Matrix<double> g = p.a;
       for (Index t = 0; t < g.rows(); ++t) {
         for (Index h = 0; h < g.cols(); ++h)
           g(t, h) = -std::exp(layer.weights.A_log(h)) *
                     std::log(1.0 + std::exp(p.a(t, h) + layer.weights.dt_bias(h)));
       }
       return Computation().agree("g of the layer, and the formula as printed", layer.out.g, g).holds();
     }},
    {"GDN-30", "001", "L178", "gates", "beta = sigma(b)", V::ok,
     [] {
       const SmallLayer layer;
       const GatedDeltaNetProjections<double> p = layer.projections();
       return Computation()
           .agree("beta of the layer", layer.out.beta,
                  p.b.unaryExpr([](double b) { return 1.0 / (1.0 + std::exp(-b)); }).eval())
           .relation("0 < beta < 1", layer.out.beta.minCoeff() > 0.0 && layer.out.beta.maxCoeff() < 1.0)
           .holds();
     }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_001_layer_equations
