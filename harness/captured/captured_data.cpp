// The data of a recorded call, head by head (captured_heads.h).

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <vector>

#include "fixtures/quote.h"
#include "harness/captured/captured_heads.h"
#include "harness/cases/case_line.h"
#include "oracles/meaning.h"

namespace samestate {

Matrix<double> CapturedHeads::token_rows(const std::string& name, std::int64_t n, std::int64_t h,
                                         std::int64_t heads, std::int64_t width) const {
  const std::int64_t b = shape_.offsets.empty() ? n : 0, begin = shape_.begin(n), end = shape_.end(n);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>((end - begin) * width));
  if (conventions_.layout == Conventions::Tokens::BHTD) {
    file_.read(name, ((b * heads + h) * shape_.T + begin) * width, (end - begin) * width, values);
  } else {
    for (std::int64_t t = begin; t < end; ++t)
      file_.read(name, ((b * shape_.T + t) * heads + h) * width, width, values);
  }
  return Eigen::Map<const Matrix<double>>(values.data(), end - begin, width);
}

Matrix<double> CapturedHeads::state_in(const std::string& name, std::int64_t n, std::int64_t h) const {
  std::vector<double> values;
  const std::int64_t dk = shape_.dk, dv = shape_.dv;
  file_.read(name, (n * shape_.Hv + h) * dk * dv, dk * dv, values);
  if (conventions_.values_first) return Eigen::Map<const Matrix<double>>(values.data(), dv, dk).transpose();
  return Eigen::Map<const Matrix<double>>(values.data(), dk, dv);
}

Sequence<double> CapturedHeads::sequence(std::int64_t n, std::int64_t h) const {
  const auto finite = [&](const Matrix<double>& x, const std::string& name, bool lowest = false) {
    for (Index t = 0; t < x.rows(); ++t) {
      for (Index j = 0; j < x.cols(); ++j) {
        if (std::isfinite(x(t, j)) || (lowest && x(t, j) < 0 && !std::isnan(x(t, j)))) continue;
        throw CapturedMismatch(fmt::format(
            "{} is {} at sequence {}, head {}, row {}, column {}: what it is judged by is not finite",
            quote(name, 60), x(t, j), n, h, t, j));
      }
    }
    return x;
  };
  const std::int64_t hk = key_head(h, shape_.Hk, shape_.Hv, shape_.head_map);
  Sequence<double> x;
  x.q = finite(token_rows(q_, n, hk, shape_.Hk, shape_.dk), q_);
  x.k = finite(token_rows(k_, n, hk, shape_.Hk, shape_.dk), k_);
  x.v = finite(token_rows(v_, n, h, shape_.Hv, shape_.dv), v_);
  const Index T = x.k.rows();
  x.g = Vector<double>::Zero(T);
  x.beta = Vector<double>::Ones(T);
  const Given& given = shape_.given;
  const bool logs = given.decay == Given::Decay::ln || given.decay == Given::Decay::log2;
  if (!g_.empty())
    x.g = finite(token_rows(g_, n, h, shape_.Hv, 1), g_, logs).col(0).unaryExpr([&](double y) {
      return meant_by_g(given, y);
    });
  if (!beta_.empty())
    x.beta = finite(token_rows(beta_, n, h, shape_.Hv, 1), beta_).col(0).unaryExpr([&](double y) {
      return meant_by_beta(given, y);
    });
  if (!x.g.allFinite())
    throw CapturedMismatch(fmt::format("{} is below 0, which no decay is", quote(g_, 60)));
  if (shape_.l2norm) {
    x.q = given.normalised(x.q);
    x.k = given.normalised(x.k);
  }
  x.scale = shape_.scale;
  x.initial_state = initial_.empty() ? Matrix<double>::Zero(shape_.dk, shape_.dv)
                                     : finite(state_in(initial_, n, h), initial_);
  return x;
}

Matrix<double> CapturedHeads::rows(std::int64_t n, std::int64_t h) const {
  return token_rows(o_, n, h, shape_.Hv, shape_.dv);
}

Matrix<double> CapturedHeads::state(std::int64_t n, std::int64_t h) const { return state_in(final_, n, h); }

std::optional<RunFile> CapturedHeads::run_file() const {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // of o: what takes a moment to explain
  const Given& given = shape_.given;
  const bool usual = given.norm == Given{}.norm && given.norm_epsilon == Given{}.norm_epsilon;
  if (!lengths_.empty() || !has_o() || !usual || shape_.B * shape_.T * shape_.Hv * shape_.dv > kMostElements)
    return std::nullopt;
  RunFile out;
  out.case_line = format_case(resolved_->c);
  out.kernel = function_.declaration->name;
  const auto tokens = [&](const char* name, const std::string& in_file, std::int64_t heads,
                          std::int64_t width, bool vector, auto&& meant) {
    if (in_file.empty()) return;
    Tensor tensor{name, DType::f64, {shape_.B, shape_.T, heads, width}, {}};
    if (vector) tensor.shape.pop_back();
    tensor.values.resize(static_cast<std::size_t>(shape_.B * shape_.T * heads * width));
    for (std::int64_t b = 0; b < shape_.B; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const Matrix<double> rows = token_rows(in_file, b, h, heads, width);
        for (Index t = 0; t < rows.rows(); ++t) {
          for (Index d = 0; d < width; ++d)
            tensor.values[static_cast<std::size_t>(((b * shape_.T + t) * heads + h) * width + d)] =
                meant(rows(t, d));
        }
      }
    }
    out.tensors.emplace(name, std::move(tensor));
  };
  const auto as_it_is = [](double x) { return x; };
  tokens("q", q_, shape_.Hk, shape_.dk, false, as_it_is);
  tokens("k", k_, shape_.Hk, shape_.dk, false, as_it_is);
  tokens("v", v_, shape_.Hv, shape_.dv, false, as_it_is);
  tokens("o", o_, shape_.Hv, shape_.dv, false, as_it_is);
  tokens("g", g_, shape_.Hv, 1, true, [&](double x) { return meant_by_g(given, x); });
  tokens("beta", beta_, shape_.Hv, 1, true, [&](double x) { return meant_by_beta(given, x); });
  for (const auto& [name, in_file] : {std::pair{"initial_state", &initial_}, {"final_state", &final_}}) {
    if (in_file->empty()) continue;
    Tensor tensor{name, DType::f64, {shape_.B, shape_.Hv, shape_.dk, shape_.dv}, {}};
    for (std::int64_t n = 0; n < shape_.B; ++n) {
      for (std::int64_t h = 0; h < shape_.Hv; ++h) {
        const Matrix<double> state = state_in(*in_file, n, h);
        tensor.values.insert(tensor.values.end(), state.data(), state.data() + state.size());
      }
    }
    out.tensors.emplace(name, std::move(tensor));
  }
  return out;
}

}  // namespace samestate
