#include <numeric>
#include <utility>

#include "oracles/bounds/logistic_complement.h"
#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/gradient_rows.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/state_space_forms.h"
#include "reference/backward/chunk.h"
#include "reference/backward/recurrence.h"
#include "reference/backward/selective_scan.h"
#include "reference/backward/state_space_duality.h"
#include "reference/retention.h"

/// The backward passes of state spaces as systems of named tensors. The gradients of rates, biases and skips are sums over
/// all sequences of a call (Axis::whole).
namespace samestate {
namespace {

/// The factors of a step, with the bounds of their own that the forward row has, and the derivatives.
template <class Scalar>
struct OracleSlopes : OracleFactors<Scalar> {
  [[nodiscard]] static InputFactorSlopes<Scalar> slopes(const Scalar& delta, const Scalar& A,
                                                        Discretisation mode) {
    if (mode == Discretisation::euler) return {Scalar(1), Scalar(0)};
    return {OracleFactors<Scalar>::decay(delta, A), input_factor_slopes(delta, A, mode).A};
  }
};

struct ScanBackward {
  static Signature signature(const Call& call) {
    Signature s = gradient_rows::reversed<state_space_operators>(call, "selective_scan");
    gradient_rows::keep_given(s, call, "d.out", "d.h");
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index D = call.at("D"), N = call.at("N");
    const auto mode = call.at("hold") != 0 ? Discretisation::zero_order_hold : Discretisation::euler;
    const std::vector<Index> lengths = gradient_rows::lengths_of(call, inputs);
    const Index T = std::reduce(lengths.begin(), lengths.end());
    const Vector<Scalar> dt_bias = get_vector(inputs, "dt_bias"), skip = get_vector(inputs, "skip");
    const Matrix<Scalar> rates = decay_rates(get(inputs, "A_log"));
    Matrix<Scalar> d_u(T, D), d_dt(T, D), d_z(T, D), d_B(T, N), d_C(T, N), d_h(std::ssize(lengths) * D, N);
    Matrix<Scalar> d_rates = Matrix<Scalar>::Zero(D, N);
    Vector<Scalar> d_skip = Vector<Scalar>::Zero(D), d_bias = Vector<Scalar>::Zero(D);
    Index first = 0;
    for (Index n = 0; n < std::ssize(lengths); ++n) {
      const Index tokens = lengths[static_cast<std::size_t>(n)];
      const auto rows = [&](std::string_view name) -> Matrix<Scalar> {
        return get(inputs, name).middleRows(first, tokens);
      };
      const Matrix<Scalar> dt = rows("dt");
      SelectiveScanCotangents<Scalar> d{Matrix<Scalar>::Zero(tokens, D), {}};
      if (inputs.contains("d.out")) d.out = rows("d.out");
      if (inputs.contains("d.h")) d.state = get(inputs, "d.h").middleRows(n * D, D);
      const SelectiveScanGradients<Scalar> one = selective_scan_backward<Scalar, OracleSlopes<Scalar>>(
          {rows("u"), time_steps(dt, dt_bias), rates, rows("B"), rows("C"), skip, rows("z"),
           get(inputs, "h").middleRows(n * D, D)},
          mode, d);
      d_u.middleRows(first, tokens) = one.u;
      d_dt.middleRows(first, tokens) = time_steps_backward(dt, dt_bias, one.delta);
      d_z.middleRows(first, tokens) = one.z;
      d_B.middleRows(first, tokens) = one.B;
      d_C.middleRows(first, tokens) = one.C;
      d_h.middleRows(n * D, D) = one.initial_state;
      d_rates += one.A;
      d_skip += one.skip;
      for (Index t = 0; t < tokens; ++t) d_bias += d_dt.row(first + t).transpose();
      first += tokens;
    }
    return {{"d.u", std::move(d_u)},
            {"d.dt", std::move(d_dt)},
            {"d.dt_bias", gradient_rows::as_row(d_bias)},
            {"d.A_log", Matrix<Scalar>(d_rates.cwiseProduct(rates))},
            {"d.B", std::move(d_B)},
            {"d.C", std::move(d_C)},
            {"d.skip", gradient_rows::as_row(d_skip)},
            {"d.z", std::move(d_z)},
            {"d.h", std::move(d_h)}};
  }
};

struct DualityBackward {
  static Signature signature(const Call& call) {
    Signature s = gradient_rows::reversed<state_space_operators>(call, "state_space_duality");
    gradient_rows::keep_given(s, call, "d.y", "d.S");
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index H = call.at("H"), P = call.at("P"), N = call.at("N"), G = call.at("G");
    const std::vector<Index> lengths = gradient_rows::lengths_of(call, inputs);
    const Index T = std::reduce(lengths.begin(), lengths.end());
    const Vector<Scalar> dt_bias = get_vector(inputs, "dt_bias"), skip = get_vector(inputs, "skip");
    const Vector<Scalar> rates = decay_rates<Scalar>(get_vector(inputs, "A_log"));
    Matrix<Scalar> d_x(T, H * P), d_dt(T, H), d_B(T, G * N), d_C(T, G * N),
        d_S(std::ssize(lengths) * H * P, N);
    Vector<Scalar> d_rates = Vector<Scalar>::Zero(H), d_skip = d_rates, d_bias = d_rates;
    Index first = 0;
    for (Index n = 0; n < std::ssize(lengths); ++n) {
      const Index tokens = lengths[static_cast<std::size_t>(n)];
      const auto rows = [&](std::string_view name) -> Matrix<Scalar> {
        return get(inputs, name).middleRows(first, tokens);
      };
      const Matrix<Scalar> dt = rows("dt");
      StateSpaceCotangents<Scalar> d{Matrix<Scalar>::Zero(tokens, H * P), {}};
      if (inputs.contains("d.y")) d.y = rows("d.y");
      if (inputs.contains("d.S")) d.state = get(inputs, "d.S").middleRows(n * H * P, H * P);
      const StateSpaceHeads<Scalar> one = state_space_heads_backward(
          StateSpaceHeads<Scalar>{rows("x"), time_steps(dt, dt_bias), rates, rows("B"), rows("C"), skip,
                                  get(inputs, "S").middleRows(n * H * P, H * P), G},
          d, [&](const Sequence<Scalar>& head, const HeadCotangents<Scalar>& of) {
            return call.form == "chunked" ? chunked_backward<Retention>(head, of, call.chunk)
                                          : recurrent_backward<Retention>(head, of);
          });
      d_x.middleRows(first, tokens) = one.x;
      d_dt.middleRows(first, tokens) = time_steps_backward(dt, dt_bias, one.delta);
      d_B.middleRows(first, tokens) = one.B;
      d_C.middleRows(first, tokens) = one.C;
      d_S.middleRows(n * H * P, H * P) = one.initial_state;
      d_rates += one.A;
      d_skip += one.skip;
      for (Index t = 0; t < tokens; ++t) d_bias += d_dt.row(first + t).transpose();
      first += tokens;
    }
    return {{"d.x", std::move(d_x)},
            {"d.dt", std::move(d_dt)},
            {"d.dt_bias", gradient_rows::as_row(d_bias)},
            {"d.A_log", gradient_rows::as_row(Vector<Scalar>(d_rates.cwiseProduct(rates)))},
            {"d.B", std::move(d_B)},
            {"d.C", std::move(d_C)},
            {"d.skip", gradient_rows::as_row(d_skip)},
            {"d.S", std::move(d_S)}};
  }
};

}  // namespace

std::vector<Operator> scan_gradient_operators() {
  Operator scan = gradient_rows::reverse_of<ScanBackward>(
      state_space_operators(), "selective_scan", "selective_scan.backward",
      "with a = e^{Delta A}, f = Delta or (a - 1) / A, d.y = d.out silu(z): dh <- a dh + d.y C from the last "
      "token to the "
      "first; d.C = d.y h, d.B = dh f u, d.u = dh f B + D d.y, d.Delta = dh a h_- A + dh B u f', d.A = sum "
      "of dh a h_- "
      "Delta + dh B u df/dA");
  scan.parameters.push_back(gradient_rows::kGivenCotangents);
  // A step forward is taken twice, and its reverse has 22 operations where the scan has 6; with zero-order hold
  // the derivative of the input's factor is as much again.
  scan.cost = [](const Call& call, const Signature&) {
    return Cost{
        costs::product({call.at("hold") != 0 ? 12 : 6, row_costs::scan(call, call.at("D")).operations})};
  };
  Operator duality = gradient_rows::reverse_of<DualityBackward>(
      state_space_operators(), "state_space_duality", "state_space_duality.backward",
      "with v = Delta x: dS <- a dS + d.y C^T from the last token to the first; d.C = S^T d.y, d.B = dS^T v, "
      "d.v = dS B, "
      "dg = <dS, a S_->; d.Delta = d.v x + A dg, d.A = sum of Delta dg, d.x = Delta d.v + D d.y; d.B and d.C "
      "of a group are "
      "sums over its heads");
  duality.parameters.push_back(gradient_rows::kGivenCotangents);
  duality.cost = [](const Call& call, const Signature&) {
    return Cost{costs::product({3, row_costs::duality(call).operations})};
  };
  return {std::move(scan), std::move(duality)};
}

}  // namespace samestate
