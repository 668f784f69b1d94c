#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/model.h"
#include "oracles/proofs/equations/planted.h"
#include "oracles/proofs/equations/rearrange.h"
#include "oracles/proofs/equations/small_layer.h"
#include "reference/costs.h"
#include "reference/gated_delta_rule.h"
#include "reference/layers/gated_attention.h"
#include "reference/layers/gated_delta_net.h"

/// Document 001: the rule, the norms and config.json.
namespace samestate::document_001_rule_equations {
namespace {

using V = LedgerVerdict;
using namespace equation_model;

Finding mixture_of_the_model() {
  const costs::MoEConfig mixture = costs::mixture(kModel);
  costs::Qwen3NextConfig dense = kModel;
  dense.shared_width = 5120;
  return Computation()
      .count("experts", mixture.experts, 512)
      .count("a token", mixture.experts_per_token, 10)
      .count("parameters of the block", costs::parameters(mixture).total, 1614809088)
      .count("of them active", costs::parameters(mixture).active, 35653632)
      .relation("a block of width 5120 (intermediate_size) would give another total: it is unused",
                costs::parameters(dense).total() != costs::parameters(kModel).total())
      .holds();
}

/// One token from a random state, and its parts by plain loops.
struct Token {
  Sequence<double> x = drawn_sequence(1, 4, 3);
  Trajectory<double> out = recurrent<GatedDeltaRule>(x);
  Matrix<double> decayed = Matrix<double>(4, 3);
  Matrix<double> memory = Matrix<double>::Zero(1, 3);
  Token() {
    for (Index i = 0; i < 4; ++i) {
      for (Index j = 0; j < 3; ++j) decayed(i, j) = std::exp(x.g(0)) * x.initial_state(i, j);
    }
    for (Index i = 0; i < 4; ++i) {
      for (Index j = 0; j < 3; ++j) memory(0, j) += decayed(i, j) * x.k(0, i);
    }
  }
};

Finding not_parallel() {
  const Sequence<double> x = drawn_sequence(37, 4, 3);
  const Trajectory<double> sequential = recurrent<GatedDeltaRule>(x);
  Computation c;
  for (const Index chunk : {4, 8, 16, 64}) {
    c.agree("chunks of " + std::to_string(chunk), chunked<GatedDeltaRule>(x, chunk).o, sequential.o);
  }
  return c.agree("parallel scan of affine maps", gated_delta_rule_scan(x).o, sequential.o)
      .contrast("sequential steps for 37 tokens", 37.0, static_cast<double>(costs::scan_depth(37)))
      .identity("gdn_scan")
      .identity("gdn_scan_order")
      .erratum();
}

Finding chunk_roles() {
  const Sequence<double> x = from_zero_state(drawn_sequence(12, 4, 3));
  const Matrix<double> right = recurrent<GatedDeltaRule>(x).o;
  Matrix<double> parallel(12, 3);
  for (Index t = 0; t < 12; t += 4) {
    parallel.middleRows(t, 4) = chunked<GatedDeltaRule>(x.slice(t, t + 4, x.initial_state), 4).o;
  }
  return Computation()
      .contrast_all("chunks without one another's state, and the rule", parallel, right)
      .agree("chunks that pass the state on in order", chunked<GatedDeltaRule>(x, 4).o, right)
      .erratum();
}

Finding gated_norm() {
  IdentityDraw<double> draw(1);
  const Matrix<double> o = draw.normal(4, 3);
  const Matrix<double> z = draw.normal(4, 3);
  const Vector<double> w = draw.uniform_vector(3, 0.5, 1.5);
  Matrix<double> loops(4, 3);
  for (Index t = 0; t < 4; ++t) {
    const double mean = (o(t, 0) * o(t, 0) + o(t, 1) * o(t, 1) + o(t, 2) * o(t, 2)) / 3.0;
    for (Index i = 0; i < 3; ++i) loops(t, i) = w(i) * o(t, i) / std::sqrt(mean + 1e-6) * silu(z(t, i));
  }
  return Computation()
      .agree("norm, weight, then silu(z)", rms_norm_gated(o, z, w, 1e-6), loops)
      .contrast_all("gate before the norm", rms_norm_of_gated(o, z, w, 1e-6), rms_norm_gated(o, z, w, 1e-6))
      .count("width of the mean, a value head", kModel.value_width, 128)
      .identity("norm_after_gate")
      .identity("norm_over_all_heads")
      .holds();
}

Finding residual_norm() {
  IdentityDraw<double> draw(1);
  const Matrix<double> x = draw.normal(4, 5);
  const Matrix<double> residual = draw.normal(4, 5);
  const Vector<double> w = draw.normal_vector(5, 0.1);
  const ResidualNorm<double> fused = rms_norm_residual(x, residual, w, 1e-6);
  const Matrix<double> sum = x + residual;
  return Computation()
      .identical("y", fused.y, rms_norm_zero_centred(sum, w, 1e-6))
      .identical("returned residual, the sum before the norm", fused.residual, sum)
      .identity("rms_norm_fused_residual")
      .identity("residual_after_norm")
      .holds();
}

Finding normalised_keys() {
  const Matrix<double> zero = Matrix<double>::Zero(1, 3);
  const double tiny = l2norm(row_of({1e-3, 0.0})).norm();
  return Computation()
      .rounds_to("|x|^2 = 1e-6: norm, eps added to the sum", tiny, 0.7071, 4)
      .contrast_all("F.normalize, which divides by max(|x|, eps) and gives 1 here, and this", row_of({1.0}),
                    row_of({tiny}))
      .identical("a zero row", l2norm(zero), zero)
      .holds();
}

Finding scaled_queries() {
  IdentityDraw<double> draw(1);
  const Matrix<double> q = draw.normal(4, 16, 0.01);
  const Matrix<double> before = 0.25 * q;
  const Matrix<double> after = 0.25 * l2norm(q);
  return Computation()
      .shape("b s h d -> b h s d", Rearrangement("b s h d -> b h s d", {kBatch, kLength, 32, 128}).shape(),
             {kBatch, 32, kLength, 128})
      .contrast_all("scaling by d^-1/2 before l2norm, and after it", l2norm(before), after)
      .rounds_to("d^-1/2", 1.0 / std::sqrt(static_cast<double>(kModel.key_width)), 0.0884, 4)
      .holds();
}

Finding initial_states() {
  const Sequence<double> x = drawn_sequence(9, 4, 3);
  const auto run = [](const Sequence<double>& part) { return recurrent<GatedDeltaRule>(part); };
  return Computation()
      .identical("a split at token 4, its state passed on", resumed(x, {4}, run).o, run(x).o)
      .contrast_all("from zero, and from a given state", run(from_zero_state(x)).o, run(x).o)
      .holds();
}

Finding rotation_of_the_model() {
  const Index width = kShape.rotary_width;
  const RotaryTables<double> tables =
      rotary_tables<double>({1, kModel.positions - 1}, width, kModel.rotary_base);
  IdentityDraw<double> draw(1);
  const Matrix<double> x = draw.normal(2, kModel.head_width);
  const Matrix<double> y = rotate(x, tables);
  return Computation()
      .count("columns of 256 that turn", width, 64)
      .identical("the others", y.rightCols(192).eval(), x.rightCols(192).eval())
      .equal("cosine of pair 31 at position 1", tables.cos(0, 31), std::cos(std::pow(1e7, -62.0 / 64.0)))
      .equal("length of a pair at position 262143", std::hypot(y(1, 3), y(1, 35)),
             std::hypot(x(1, 3), x(1, 35)))
      .identity("rotary_relative_position")
      .identity("rotary_other_pairs")
      .holds();
}

const Equation kRows[] = {
    {"GDN-31", "001", "L184-186", "gated_delta_rule", "the recurrent function is the prefill computation",
     V::inconsistent,
     [] {
       const Sequence<double> x = drawn_sequence(37, 4, 3);
       return Computation()
           .agree("prefill in chunks of 16, and the recurrence", chunked<GatedDeltaRule>(x, 16).o,
                  recurrent<GatedDeltaRule>(x).o)
           .agree("their states", chunked<GatedDeltaRule>(x, 16).state, recurrent<GatedDeltaRule>(x).state)
           .remark("resolution: chunks prefill, the recurrence decodes; one function")
           .identity("gdn_chunked")
           .identity("gdn_prefill_then_chunks")
           .resolved();
     }},
    {"GDN-32", "001", "L240-243", "l2norm", "q, k <- x (sum x^2 + 1e-6)^-1/2", V::ok, normalised_keys},
    {"GDN-33", "001", "L244-252", "gated_delta_rule", "to [b, h, s, .], fp32; q <- q d^-1/2 after l2norm",
     V::ok, scaled_queries},
    {"GDN-34", "001", "L254-261", "gated_delta_rule", "o = 0; S = 0 or initial_state", V::ok, initial_states},
    {"GDN-35", "001", "L269,273", "gated_delta_rule", "S <- exp(g_t) S", V::ok,
     [] {
       Token t;
       t.x.beta.setZero();
       return Computation()
           .agree("the state of a token with beta = 0", recurrent<GatedDeltaRule>(t.x).state, t.decayed)
           .holds();
     }},
    {"GDN-36", "001", "L274", "gated_delta_rule", "m_t = sum_i S[i, :] k_t[i], S already decayed", V::ok,
     [] {
       const Token t;
       return Computation()
           .agree("m from what the token writes, v - delta / beta",
                  (t.x.v - t.out.delta / t.x.beta(0)).eval(), t.memory)
           .contrast_all("m of the state before the decay", (t.x.k * t.x.initial_state).eval(), t.memory)
           .identity("gdn_prediction_before_decay")
           .holds();
     }},
    {"GDN-37", "001", "L275", "gated_delta_rule", "delta_t = beta_t (v_t - m_t)", V::ok,
     [] {
       const Token t;
       return Computation().agree("delta", t.out.delta, (t.x.beta(0) * (t.x.v - t.memory)).eval()).holds();
     }},
    {"GDN-38", "001", "L276", "gated_delta_rule", "S <- S + k_t delta_t^T", V::ok,
     [] {
       const Token t;
       return Computation()
           .agree("S", t.out.state, (t.decayed + t.x.k.transpose() * t.out.delta).eval())
           .holds();
     }},
    {"GDN-39", "001", "L277", "gated_delta_rule", "o_t = S^T q_t, after the write", V::ok,
     [] {
       const Token t;
       return Computation()
           .agree("o / scale, and q^T S after the write", (t.out.o / t.x.scale).eval(),
                  (t.x.q * t.out.state).eval())
           .contrast_all("q^T S before the write", (t.x.q * t.decayed).eval(), (t.x.q * t.out.state).eval())
           .identity("gdn_read_before_write")
           .holds();
     }},
    {"GDN-40", "001", "L282-283", "gated_delta_rule", "output to [b, s, h, dv]; final state optional", V::ok,
     [] {
       const SmallLayer layer;
       return Computation()
           .shape("b h s d -> b s h d",
                  Rearrangement("b h s d -> b s h d", {kBatch, 32, kLength, 128}).shape(),
                  {kBatch, kLength, 32, 128})
           .shape("core of the small layer", {layer.out.core.rows(), layer.out.core.cols()}, {9, 4 * 2})
           .count("states that it returns", static_cast<std::int64_t>(layer.out.cache.state.size()), 4)
           .holds();
     }},
    {"GDN-41", "001", "L285", "gated_delta_rule", "like an RNN, cannot be computed in parallel", V::erratum,
     not_parallel},
    {"GDN-42", "001", "L287", "gated_delta_rule",
     "compute chunks in parallel with each other, afterwards each chunk", V::erratum, chunk_roles},
    {"RMS-1", "001", "L298-304", "norms", "o <- w o (mean o^2 + eps)^-1/2, then silu(z): norm before gate",
     V::ok, gated_norm},
    {"GDN-43", "001", "L309", "gated_delta_net", "y = out_proj(o)", V::ok,
     [] {
       const SmallLayer layer;
       return Computation()
           .agree("y", layer.out.y, (layer.out.gated * layer.weights.out_proj.transpose()).eval())
           .count("weights 4096 -> 2048, no bias", costs::linear_parameters(kShape.value_dim, kModel.hidden),
                  8388608)
           .holds();
     }},
    {"RMS-2", "001", "L313", "norms", "zero-centred RMSNorm: weight + 1, weight initialised 0", V::ok,
     [] {
       IdentityDraw<double> draw(1);
       const Matrix<double> x = draw.normal(4, 5);
       return Computation()
           .identical("at its initial value it is the plain norm at w = 1",
                      rms_norm_zero_centred<double>(x, Vector<double>::Zero(5), 1e-6),
                      rms_norm<double>(x, Vector<double>::Ones(5), 1e-6))
           .identity("rms_norm_shifted_weight")
           .identity("zero_centred_as_plain")
           .holds();
     }},
    {"RMS-3", "001", "L315-317", "norms", "formulas of both norms announced, absent", V::incomplete,
     [] {
       const Vector<double> one = Vector<double>::Ones(2);
       return Computation()
           .equal("plain, x = (3, 4), w = 1, eps = 0: first entry 3 / sqrt(12.5)",
                  rms_norm(row_of({3, 4}), one, 0.0)(0, 0), 3.0 / std::sqrt(12.5))
           .equal("zero-centred, w = 1: twice that", rms_norm_zero_centred(row_of({3, 4}), one, 0.0)(0, 0),
                  6.0 / std::sqrt(12.5))
           .remark("resolution: RMS-5 and RMS-6 of document 002")
           .resolved();
     }},
    {"RMS-4", "001", "L343-352", "norms", "x <- x + residual; y = norm(x) (1 + w); returns (y, x)", V::ok,
     residual_norm},
    {"CFG-8", "001", "L406,425", "qwen3_next", "full_attention_interval 4, 48 layers", V::ok,
     [] {
       Computation c;
       c.count("attention layers", kShape.attention_layers, 12);
       return c
           .relation("0-based layers 3, 7 and 47 are attention, 0, 4 and 46 are not",
                     costs::is_full_attention(kModel, 3) && costs::is_full_attention(kModel, 7) &&
                         costs::is_full_attention(kModel, 47) && !costs::is_full_attention(kModel, 0) &&
                         !costs::is_full_attention(kModel, 4) && !costs::is_full_attention(kModel, 46))
           .holds();
     }},
    {"CFG-9", "001", "L407,422,426", "gated_attention", "16 query heads, 2 KV heads, head_dim 256", V::ok,
     [] {
       return Computation()
           .count("q", kShape.query_dim, 4096)
           .count("k, and v", costs::product({kModel.kv_heads, kModel.head_width}), 512)
           .count("query heads a KV head", costs::quotient(kModel.attention_heads, kModel.kv_heads, "heads"),
                  8)
           .relation("q is wider than the model", kShape.query_dim != kModel.hidden)
           .holds();
     }},
    {"CFG-10", "001", "L417,428,430,431", "rotary_embedding",
     "rope theta 1e7, partial factor 0.25, no scaling, 262144 positions", V::ok, rotation_of_the_model},
    {"CFG-11", "001", "L412-416", "qwen3_next", "conv 4; 16 key heads x 128; 32 value heads x 128", V::ok,
     [] {
       return Computation()
           .count("weights of the convolution", costs::product({kShape.convolved, kModel.convolution_width}),
                  32768)
           .count("parameters of the mixer", costs::gated_delta_net_parameters(kModel), 33718464)
           .holds();
     }},
    {"CFG-12", "001", "L404,411,418,420-421,423-424,432-433", "mixture_of_experts",
     "every layer MoE: 512 experts, top 10, moe width 512, shared width 512, norm_topk_prob", V::ok,
     mixture_of_the_model},
    {"CFG-13", "001", "L402-403,405,408-410,419,427,429,434-439", "qwen3_next",
     "hidden 2048, vocab 151936, untied ..", V::ok,
     [] {
       costs::Qwen3NextConfig tied = kModel;
       tied.tied_embeddings = true;
       const costs::Count embedding = costs::parameters(kModel).embedding;
       return Computation()
           .count("weights of one embedding, 151936 x 2048", embedding, 311164928)
           .count("what tying would save",
                  costs::parameters(kModel).total() - costs::parameters(tied).total(), embedding)
           .holds();
     }},
    {"COST-6", "001", "L354", "costs", "80B-A3B", V::ok, [] { return finding_of_the_model_size(kModel); }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_001_rule_equations
