#include "reference/norms.h"

#include "oracles/proofs/goldens/groups.h"
#include "reference/backward/norms.h"

namespace samestate::norm_golden {
namespace {

/// Throws Error unless both tensors have three dimensions and one shape, and w their last extent.
void require_shapes(const GoldenSource& s, std::string_view x, std::string_view like) {
  s.require_shape(x, {-1, -1, -1});
  const std::vector<std::int64_t>& shape = s.tensor(x).shape;
  s.require_shape(like, {shape.begin(), shape.end()});
  s.require_shape("w", {shape.back()});
}

}  // namespace

void check(const GoldenSource& source) {
  const double epsilon = source.number("eps");
  if (source.group == "gated_rmsnorm") {
    require_shapes(source, "x", "z");
    const Matrix<double> y =
        rms_norm_gated(source.matrix("x"), source.matrix("z"), source.vector("w"), epsilon);
    source.check("out", "norm, then gate", y);
    return;
  }
  for (const auto& [x, out] : {std::pair{"x", "out"}, std::pair{"x_tiny", "out_tiny"}}) {
    require_shapes(source, x, out);
    const Matrix<double> rows = source.matrix(x);
    source.check(out, "plain", rms_norm_zero_centred(rows, source.vector("w"), epsilon));
    const Matrix<double> nothing = Matrix<double>::Zero(rows.rows(), rows.cols());
    source.check(out, "fused residual", rms_norm_residual(rows, nothing, source.vector("w"), epsilon).y);
  }
}

void check_backward(const GoldenSource& source) {
  const bool gated = source.forward_group == "gated_rmsnorm";
  require_shapes(source, "x", "d.out");
  const double epsilon = source.number("eps");
  const Matrix<double> x = source.matrix("x"), d_out = source.matrix("d.out");
  const Vector<double> w = source.vector("w");
  const NormGradients<double> mine = gated ? rms_norm_gated_backward(x, source.matrix("z"), w, epsilon, d_out)
                                           : rms_norm_zero_centred_backward(x, w, epsilon, d_out);
  source.check("d.x", "reverse", mine.x);
  if (gated) source.check("d.z", "reverse", mine.z);
  source.check("d.w", "reverse", Matrix<double>(mine.weight));
}

}  // namespace samestate::norm_golden
