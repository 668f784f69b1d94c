#include <cmath>

#include "fuzz/mutants/family/rows.h"
#include "optimized/cpu/rounding.h"

/// Bugs of scale and normalisation (M47-M51) and roundings that no contract declares (M55, M62, M71, M72).
namespace samestate::mutants {
namespace {

template <class Base>
struct NoScale : Base {
  using Base::Base;
  float scale() const override { return 1.0F; }
};
template <class Base>
struct ScaleTwice : Base {
  using Base::Base;
  float scale() const override { return Base::scale() * Base::scale(); }
};
template <class Base>
struct ScaleOfValueWidth : Base {
  using Base::Base;
  float scale() const override { return 1.0F / std::sqrt(static_cast<float>(this->head_.dv)); }
};

template <class Base>
struct NormClamped : Base {
  using Base::Base;
  void normalise(Column& x) const override { x /= std::max(x.norm(), 1e-6F); }
};
template <class Base>
struct EpsilonOutsideRoot : Base {
  using Base::Base;
  void normalise(Column& x) const override { x /= x.norm() + 1e-6F; }
};
template <class Base>
struct RmsNorm : Base {
  using Base::Base;
  void normalise(Column& x) const override {
    const auto d = static_cast<float>(x.size());
    x *= 1.0F / std::sqrt(d * (x.squaredNorm() / d + 1e-6F));
  }
};
template <class Base>
struct NormIgnored : Base {
  using Base::Base;
  void normalise(Column&) const override {}
};

template <class Base>
struct Bf16Beta : Base {
  using Base::Base;
  float strength(float beta) const override { return cpu::to_bf16(beta); }
};

/// o before the scale is held in fp16, whose largest value is 65504.
template <class Base>
struct Fp16Readout : Base {
  using Base::Base;
  void readout(Grid& o) const override {
    o = rounded(o, Format::fp16);
    Base::readout(o);
  }
};

/// Every partial sum is rounded.
template <class Base, Format format>
struct LowSums : Base {
  using Base::Base;
  Grid multiply(const Grid& a, const Grid& b) const override {
    Grid c = Grid::Zero(a.rows(), b.cols());
    for (Index l = 0; l < a.cols(); ++l) c = rounded(c + a.col(l) * b.row(l), format);
    return c;
  }
};
template <class Base>
using Bf16Sums = LowSums<Base, Format::bf16>;
template <class Base>
using Fp16Sums = LowSums<Base, Format::fp16>;

template <class Base>
struct Tf32Products : Base {
  using Base::Base;
  Grid multiply(const Grid& a, const Grid& b) const override {
    return Base::multiply(rounded(a, Format::tf32), rounded(b, Format::tf32));
  }
};

template <class Base>
struct NoEpsilon : Base {
  using Base::Base;
  void normalise(Column& x) const override {
    if (const float norm = x.norm(); norm > 0.0F) x /= norm;
  }
};

/// P and o use the other 16-bit format.
template <class Base>
struct OtherFormat : Base {
  using Base::Base;
  static Contract kept(Contract c) {
    if (c.input == Format::bf16 || c.input == Format::fp16)
      c.P = c.output = c.input == Format::bf16 ? Format::fp16 : Format::bf16;
    return c;
  }
};

}  // namespace

std::vector<Mutant> precision_mutants() {
  std::vector<Mutant> out;
  add_both<NoScale>(out, {"M47", "no_scale", "the scale is ignored"}, kAll);
  add_both<ScaleTwice>(out, {"M47", "scale_twice", "the scale is applied twice"}, kAll);
  add_both<ScaleOfValueWidth>(
      out, {"M47", "scale_of_value_width", "dv^-1/2 instead of the scale that is given"}, kAll);
  add_both<NormClamped>(out, {"M48", "norm_clamped", "x / max(||x||, eps) instead of x (sum x^2 + eps)^-1/2"},
                        kAll);
  add_both<EpsilonOutsideRoot>(out, {"M49", "epsilon_outside_root", "x / (||x|| + eps)"}, kAll);
  add_both<RmsNorm>(out, {"M50", "rms_norm", "RMSNorm d^-1/2 for the l2 norm: epsilon is d times larger"},
                    kAll);
  add_both<NormIgnored>(out, {"M51", "norm_ignored", "the l2norm flag is ignored"}, kAll);
  add_both<Bf16Beta>(out, {"M55", "bf16_beta", "beta is rounded to bf16"}, kDeltas);
  add_both<Bf16Beta>(
      out,
      {"M55", "bf16_beta_in_bf16",
       "beta is rounded to bf16, by a kernel that promises bf16 q, k, v and an fp32 beta", kOnlyBf16},
      kDeltas);
  add_both<Fp16Readout>(
      out, {"M62", "fp16_readout", "the readout overflows in fp16 before it is scaled", kOnlyFp16}, kAll);
  add_both<Bf16Sums>(out, {"M71", "bf16_sums", "partial sums are kept in bf16"}, kAll);
  add_both<Bf16Sums>(out,
                     {"M71", "bf16_sums_in_bf16",
                      "partial sums are kept in bf16, by a kernel that promises bf16 operands", kOnlyBf16},
                     kAll);
  add_both<Fp16Sums>(out,
                     {"M71", "fp16_sums_in_fp16",
                      "partial sums are kept in fp16, by a kernel that promises fp16 operands", kOnlyFp16},
                     kAll);
  add_both<Tf32Products>(out, {"M72", "tf32_products", "operands of products are rounded to tf32", {"fp32"}},
                         kAll);
  add_both<NoEpsilon>(out, {"F", "no_epsilon", "x / ||x||, without epsilon"}, kAll);
  add_both<OtherFormat>(
      out, {"F", "other_16_bit_format", "o is rounded to fp16 where bf16 is meant, to bf16 where fp16 is"},
      kAll);
  return out;
}

}  // namespace samestate::mutants
