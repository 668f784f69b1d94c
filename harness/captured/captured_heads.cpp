// The data of a recorded call: one head in float64, or all of it as a run file.

#include "harness/captured/captured_heads.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "fixtures/quote.h"
#include "harness/run/judge_batch.h"
#include "oracles/meaning.h"

namespace samestate {
namespace {

/// Exchanges two axes: [.., a, b, inner] becomes [.., b, a, inner].
void exchange(std::vector<double>& values, std::int64_t a, std::int64_t b, std::int64_t inner) {
  const std::vector<double> from = values;
  const std::int64_t block = a * b * inner;
  for (std::int64_t at = 0; at < std::ssize(from); ++at) {
    const std::int64_t i = at % block / inner / b, j = at % block / inner % b;
    values[static_cast<std::size_t>(at / block * block + (j * a + i) * inner + at % inner)] =
        from[static_cast<std::size_t>(at)];
  }
}

/// Returns the shape of the case's batch, including the tokens of its file that belong to no sequence.
BatchShape shape_of(const CapturedRun& run) {
  const Case& c = run.resolved().c;
  BatchShape shape = batch_shape_of(run.resolved());
  shape.given = run.given();
  for (std::int64_t& offset : shape.offsets) offset += c.lead;
  shape.T = c.T + c.lead + c.slack;
  return shape;
}

}  // namespace

std::optional<RunFile> CapturedRun::run_file() const {
  const Case& c = resolved_->c;
  const auto count_of = [](const std::vector<std::int64_t>& of) {
    return std::accumulate(of.begin(), of.end(), std::int64_t{1}, std::multiplies<>());
  };
  RunFile out{format_case(c), function_.declaration->name};
  if (resolved_->form->of_any_form()) out.form = function_.declaration->form;
  // The conventions of g and beta are applied to their values here; a norm of q and k is left to the judge.
  Given norm;
  norm.norm = given_.norm, norm.norm_epsilon = given_.norm_epsilon;
  out.given = text_of(norm);
  for (const Wanted& tensor : wanted(c)) {
    const std::string& place = this->place(tensor.name);
    if (place.empty()) return std::nullopt;
    Tensor x = file_.tensor(place);
    const std::vector<std::int64_t> shape = in_our_layout(tensor, file_.shape(place));
    x.name = tensor.name, x.dtype = DType::f64, x.shape = tensor.shape;
    const std::size_t rank = shape.size();
    if (tensor.spec.axis == Axis::tokens || tensor.spec.axis == Axis::prefix) {
      const std::int64_t row = count_of({shape.begin() + 2, shape.end()});
      if (conventions().layout == Conventions::Tokens::BHTD && rank > 2)
        exchange(x.values, shape[2], shape[1], row / std::max<std::int64_t>(shape[2], 1));
      x.values.erase(x.values.begin(), x.values.begin() + c.lead * row);
      x.values.resize(static_cast<std::size_t>(count_of(x.shape)));
    } else if (tensor.spec.axis == Axis::state && conventions().values_first && rank > 1) {
      exchange(x.values, shape[rank - 1], shape[rank - 2], 1);
    }
    if (system_->of_family() && tensor.spec.content == Content::log_decay)
      for (double& value : x.values) value = meant_by_g(given_, value);
    if (system_->of_family() && tensor.spec.content == Content::strength)
      for (double& value : x.values) value = meant_by_beta(given_, value);
    out.tensors.emplace(tensor.name, std::move(x));
  }
  if (resolved_->form->packed) {
    const std::vector<std::int64_t> offsets = offsets_of(c);
    out.tensors["cu_seqlens"] = {
        "cu_seqlens", DType::i64, {std::ssize(offsets)}, {offsets.begin(), offsets.end()}};
  }
  return out;
}

CapturedHeads::CapturedHeads(const CapturedRun& run)
    : run_(run), family_(family_named(run.resolved().c.system)), shape_(shape_of(run)) {}

Matrix<double> CapturedHeads::token_rows(const std::string& name, std::int64_t n, std::int64_t h,
                                         std::int64_t heads, std::int64_t width) const {
  const std::int64_t b = shape_.offsets.empty() ? n : 0, begin = shape_.begin(n), end = shape_.end(n);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>((end - begin) * width));
  if (run_.conventions().layout == Conventions::Tokens::BHTD) {
    run_.file().read(name, ((b * heads + h) * shape_.T + begin) * width, (end - begin) * width, values);
  } else {
    for (std::int64_t t = begin; t < end; ++t)
      run_.file().read(name, ((b * shape_.T + t) * heads + h) * width, width, values);
  }
  return Eigen::Map<const Matrix<double>>(values.data(), end - begin, width);
}

Matrix<double> CapturedHeads::state_in(const std::string& name, std::int64_t n, std::int64_t h) const {
  std::vector<double> values;
  const std::int64_t dk = shape_.dk, dv = shape_.dv;
  run_.file().read(name, (n * shape_.Hv + h) * dk * dv, dk * dv, values);
  if (run_.conventions().values_first)
    return Eigen::Map<const Matrix<double>>(values.data(), dv, dk).transpose();
  return Eigen::Map<const Matrix<double>>(values.data(), dk, dv);
}

Sequence<double> CapturedHeads::sequence(std::int64_t n, std::int64_t h) const {
  const auto finite = [&](const Matrix<double>& x, const std::string& name, bool lowest = false) {
    for (Index t = 0; t < x.rows(); ++t) {
      for (Index j = 0; j < x.cols(); ++j) {
        if (std::isfinite(x(t, j)) || (lowest && x(t, j) < 0 && !std::isnan(x(t, j)))) continue;
        throw CapturedMismatch(fmt::format(
            "{} is {} at sequence {}, head {}, row {}, column {}, so that the result cannot be judged",
            quote(name, 60), x(t, j), n, h, t, j));
      }
    }
    return x;
  };
  const std::int64_t hk = key_head(h, shape_.Hk, shape_.Hv, shape_.head_map);
  Sequence<double> x;
  const auto rows_of = [&](std::string_view ours, std::int64_t head, std::int64_t heads, std::int64_t width,
                           bool lowest = false) {
    const std::string& place = run_.place(ours);
    return finite(token_rows(place, n, head, heads, width), place, lowest);
  };
  x.q = rows_of("q", hk, shape_.Hk, shape_.dk);
  x.k = rows_of("k", hk, shape_.Hk, shape_.dk);
  x.v = rows_of("v", h, shape_.Hv, shape_.dv);
  const Index T = x.k.rows();
  x.g = Vector<double>::Zero(T);
  x.beta = Vector<double>::Ones(T);
  const Given& given = shape_.given;
  const bool logs = given.decay == Given::Decay::ln || given.decay == Given::Decay::log2;
  if (family_.gated)
    x.g =
        rows_of("g", h, shape_.Hv, 1, logs).col(0).unaryExpr([&](double y) { return meant_by_g(given, y); });
  if (family_.delta)
    x.beta =
        rows_of("beta", h, shape_.Hv, 1).col(0).unaryExpr([&](double y) { return meant_by_beta(given, y); });
  if (!x.g.allFinite())
    throw CapturedMismatch(fmt::format("{} is below 0, but a decay is not", quote(run_.place("g"), 60)));
  if (T > 0 && x.g.maxCoeff() > 0.0)
    throw CapturedMismatch(
        fmt::format("{} lets the state of head {} grow: a decay is at most 1, and its logarithm at most 0",
                    quote(run_.place("g"), 60), h));
  if (shape_.l2norm) {
    x.q = given.normalised(x.q);
    x.k = given.normalised(x.k);
  }
  x.scale = shape_.scale;
  const std::string& initial = run_.place("initial_state");
  x.initial_state =
      initial.empty() ? Matrix<double>::Zero(shape_.dk, shape_.dv) : finite(state_in(initial, n, h), initial);
  return x;
}

Matrix<double> CapturedHeads::rows(std::int64_t n, std::int64_t h) const {
  return token_rows(run_.place("o"), n, h, shape_.Hv, shape_.dv);
}

Matrix<double> CapturedHeads::state(std::int64_t n, std::int64_t h) const {
  return state_in(run_.place("final_state"), n, h);
}

}  // namespace samestate
