#include "oracles/batch.h"

#include <cmath>

#include "reference/error.h"

namespace samestate {
namespace {

using FloatMatrix = Matrix<float>;
using Rows = Eigen::Map<const FloatMatrix, 0, Eigen::OuterStride<>>;

/// The [tokens, width] part of head h of a [B,T,H,D] tensor, tokens [begin, end) of batch row b.
Rows rows(const std::vector<float>& data, std::int64_t b, std::int64_t T, std::int64_t H, std::int64_t D,
          std::int64_t h, std::int64_t begin, std::int64_t end) {
  return {data.data() + ((b * T + begin) * H + h) * D, end - begin, D, Eigen::OuterStride<>(H * D)};
}

struct Span {
  std::int64_t b, begin, end;
};

Span tokens_of(const BatchShape& s, std::int64_t n) {
  return {s.offsets.empty() ? n : 0, s.begin(n), s.end(n)};
}

}  // namespace

std::int64_t key_head(std::int64_t h, std::int64_t Hk, std::int64_t Hv, HeadMap map) {
  if (Hk < 1 || Hv < 1 || Hv % Hk != 0) {
    throw Error("Hv=" + std::to_string(Hv) + ", Hk=" + std::to_string(Hk) +
                ": value heads must be a whole multiple of key heads");
  }
  return map == HeadMap::interleaved ? h / (Hv / Hk) : h % Hk;
}

Sequence<double> sequence_of(const Batch& batch, std::int64_t n, std::int64_t h) {
  const BatchShape& s = batch.shape;
  const Span at = tokens_of(s, n);
  const std::int64_t hk = key_head(h, s.Hk, s.Hv, s.head_map);
  const std::int64_t T = at.end - at.begin;

  Sequence<double> x;
  x.q = rows(batch.q, at.b, s.T, s.Hk, s.dk, hk, at.begin, at.end).cast<double>();
  x.k = rows(batch.k, at.b, s.T, s.Hk, s.dk, hk, at.begin, at.end).cast<double>();
  x.v = rows(batch.v, at.b, s.T, s.Hv, s.dv, h, at.begin, at.end).cast<double>();
  x.g = Vector<double>::Zero(T);
  x.beta = Vector<double>::Ones(T);
  if (!batch.g.empty()) x.g = rows(batch.g, at.b, s.T, s.Hv, 1, h, at.begin, at.end).cast<double>();
  if (!batch.beta.empty()) x.beta = rows(batch.beta, at.b, s.T, s.Hv, 1, h, at.begin, at.end).cast<double>();
  const Given& given = s.given;
  const auto read = [&](auto& values, auto&& as) { values = values.unaryExpr(as).eval(); };
  if (given != Given{}) {
    if (!batch.g.empty()) read(x.g, [&](double g) { return given.read_g(g); });
    if (!batch.beta.empty()) read(x.beta, [&](double beta) { return given.read_beta(beta); });
    if (!s.l2norm) read(x.q, [&](double q) { return given.read_q(q, s.scale); });
  }
  if (s.l2norm) {
    x.q = given.normalised(x.q);
    x.k = given.normalised(x.k);
  }
  x.scale = s.scale;
  x.initial_state = Matrix<double>::Zero(s.dk, s.dv);
  if (!batch.initial_state.empty()) {
    x.initial_state =
        Eigen::Map<const FloatMatrix>(batch.initial_state.data() + (n * s.Hv + h) * s.dk * s.dv, s.dk, s.dv)
            .cast<double>();
  }
  return x;
}

Matrix<double> rows_of(const Batch& batch, const Outputs& outputs, std::int64_t n, std::int64_t h) {
  const BatchShape& s = batch.shape;
  const Span at = tokens_of(s, n);
  return rows(outputs.o, at.b, s.T, s.Hv, s.dv, h, at.begin, at.end).cast<double>();
}

Matrix<double> state_of(const Batch& batch, const Outputs& outputs, std::int64_t n, std::int64_t h) {
  const BatchShape& s = batch.shape;
  return Eigen::Map<const FloatMatrix>(outputs.final_state.data() + (n * s.Hv + h) * s.dk * s.dv, s.dk, s.dv)
      .cast<double>();
}

void require_finite(const Batch& batch) {
  const auto check = [](const char* name, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        throw Error(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
                    ": inputs must be finite (a NaN or infinity would make every comparison vacuous)");
      }
    }
  };
  check("q", batch.q);
  check("k", batch.k);
  check("v", batch.v);
  check("g", batch.g);
  check("beta", batch.beta);
  check("initial_state", batch.initial_state);
}

}  // namespace samestate
