#include "fuzz/mutants/backward/plain_reverse_duality.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "optimized/cpu/rounding.h"

namespace samestate::mutants {
namespace {

double logistic_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const float* given_input(const OperatorArguments& call, std::string_view name) {
  const auto at = std::ranges::find(call.inputs, name, &NamedTensor<const float>::name);
  return at == call.inputs.end() ? nullptr : at->data;
}

class PlainReverseHead {
 public:
  PlainReverseHead(const OperatorArguments& call, const Contract& contract, DualitySlip slip)
      : call_(call),
        contract_(contract),
        slip_(slip),
        T_(call.tokens),
        H_(call.parameter("H")),
        G_(call.parameter("G")),
        P_(call.parameter("P")),
        N_(call.parameter("N")) {}

  void run() {
    std::vector<double> sums(static_cast<std::size_t>(3 * H_), 0.0);
    carried_.assign(static_cast<std::size_t>(H_ * P_ * N_), 0.0);
    const std::int64_t width = G_ * N_;
    for (std::int64_t b = 0; b < call_.batch; ++b) {
      shared_.assign(static_cast<std::size_t>(2 * T_ * width), 0.0);
      for (std::int64_t h = 0; h < H_; ++h) head(b, h, sums.data() + 3 * h);
      for (std::int64_t i = 0; i < T_ * width; ++i) {
        write("d.B", b * T_ * width + i, shared_[static_cast<std::size_t>(i)], contract_.output);
        write("d.C", b * T_ * width + i, shared_[static_cast<std::size_t>(T_ * width + i)], contract_.output);
      }
    }
    for (std::int64_t h = 0; h < H_; ++h) {
      const double* const sum = sums.data() + 3 * h;
      write("d.A_log", h, sum[0] * (is(DualitySlip::rate_without_itself) ? 1.0 : rate(h)), Format::fp32);
      write("d.dt_bias", h, sum[1], Format::fp32);
      write("d.skip", h, sum[2], Format::fp32);
    }
  }

 private:
  [[nodiscard]] bool is(DualitySlip slip) const { return slip_ == slip; }
  void write(std::string_view name, std::int64_t at, double x, Format format) const {
    const float y = static_cast<float>(x);
    cpu::round_values(&y, call_.output(name).data + at, 1, format);
  }
  [[nodiscard]] double rate(std::int64_t h) const { return -std::exp(static_cast<double>(A_log_[h])); }
  /// dt and its bias, before the softplus.
  [[nodiscard]] double time(std::int64_t row, std::int64_t h) const {
    return static_cast<double>(dt_[row * H_ + h]) + static_cast<double>(bias_[h]);
  }
  [[nodiscard]] double step(std::int64_t row, std::int64_t h) const {
    const double x = time(row, h);
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  }
  [[nodiscard]] double decay(std::int64_t row, std::int64_t h) const {
    return std::exp(step(row, h) * rate(h));
  }
  [[nodiscard]] std::int64_t group(std::int64_t h) const { return h / (H_ / G_) * N_; }

  /// The state [P, N] behind token `row`.
  void advance(std::int64_t row, std::int64_t h, const double* from, double* to) const {
    const double a = decay(row, h), delta = step(row, h);
    const float* const B = B_ + row * G_ * N_ + group(h);
    for (std::int64_t p = 0; p < P_; ++p) {
      const double v = delta * static_cast<double>(x_[row * H_ * P_ + h * P_ + p]);
      for (std::int64_t s = 0; s < N_; ++s)
        to[p * N_ + s] = a * from[p * N_ + s] + v * static_cast<double>(B[s]);
    }
  }

  void head(std::int64_t b, std::int64_t h, double* sums) {
    const std::int64_t size = P_ * N_, chunk = std::max<std::int64_t>(call_.chunk, 1);
    std::vector<double> S(static_cast<std::size_t>((T_ + 1) * size));
    for (std::int64_t i = 0; i < size; ++i)
      S[static_cast<std::size_t>(i)] = static_cast<double>(S_[(b * H_ + h) * size + i]);
    for (std::int64_t t = 0; t < T_; ++t)
      advance(b * T_ + t, h, S.data() + t * size, S.data() + (t + 1) * size);
    double* const dS = carried_.data() + h * size;
    for (std::int64_t i = 0; i < size; ++i) {
      const double last = d_S_ != nullptr ? static_cast<double>(d_S_[(b * H_ + h) * size + i]) : 0.0;
      dS[i] = last + (is(DualitySlip::carried_into_next_sequence) ? dS[i] : 0.0);
    }
    std::vector<double> before(static_cast<std::size_t>(size)), after = before;
    for (std::int64_t t = T_; t-- > 0;) {
      std::copy_n(S.data() + t * size, size, before.data());
      if (is(DualitySlip::state_of_the_chunk_before) && t >= chunk) {
        const std::int64_t begin = t / chunk * chunk;
        std::copy_n(S.data() + (begin - chunk) * size, size, before.data());
        for (std::int64_t i = begin; i < t; ++i) {
          advance(b * T_ + i, h, before.data(), after.data());
          std::swap(before, after);
        }
      }
      advance(b * T_ + t, h, before.data(), after.data());
      token(b, t, h, before.data(), after.data(), dS, sums);
    }
    const double first = is(DualitySlip::last_decay_lost) && T_ > 0 ? std::max(decay(b * T_, h), 1e-30) : 1.0;
    for (std::int64_t i = 0; i < size; ++i)
      write("d.S", (b * H_ + h) * size + i, dS[i] / first, contract_.state);
  }

  void token(std::int64_t b, std::int64_t t, std::int64_t h, const double* before, const double* after,
             double* dS, double* sums) {
    const std::int64_t row = b * T_ + t, chunk = std::max<std::int64_t>(call_.chunk, 1);
    const double delta = step(row, h), A = rate(h), a = decay(row, h), skip = static_cast<double>(skip_[h]);
    const bool reaches =
        !is(DualitySlip::last_token_of_chunk_lost) || (t % chunk != chunk - 1 && t != T_ - 1);
    const float *const B = B_ + row * G_ * N_ + group(h), *const C = C_ + row * G_ * N_ + group(h);
    double* const d_B = shared_.data() + t * G_ * N_ + group(h);
    double* const d_C = d_B + T_ * G_ * N_;
    if (is(DualitySlip::heads_overwritten)) std::fill_n(d_B, N_, 0.0), std::fill_n(d_C, N_, 0.0);
    double dg = 0.0, along = 0.0;
    for (std::int64_t p = 0; p < P_; ++p) {
      const std::int64_t at = row * H_ * P_ + h * P_ + p;
      const double x = static_cast<double>(x_[at]),
                   dy = d_y_ != nullptr ? static_cast<double>(d_y_[at]) : 0.0;
      double dv = 0.0;
      for (std::int64_t s = 0; s < N_; ++s) {
        double& D = dS[p * N_ + s];
        if (reaches) D += dy * static_cast<double>(C[s]);
        d_C[s] += dy * after[p * N_ + s];
        d_B[s] += D * delta * x;
        dv += D * static_cast<double>(B[s]);
        dg += D * a * (is(DualitySlip::state_after_for_state_before) ? after : before)[p * N_ + s];
        if (is(DualitySlip::decay_of_the_token_before)) {
          D *= t > 0 ? decay(row - 1, h) : a;
        } else if (!is(DualitySlip::decay_lost)) {
          D *= a;
        }
      }
      along += dv * x;
      sums[2] += dy * x;
      const double through = (is(DualitySlip::input_without_step) ? 1.0 : delta) * dv;
      write("d.x", at, through + (is(DualitySlip::skip_without_input_gradient) ? 0.0 : skip * dy),
            contract_.output);
    }
    double d_delta = 0.0;
    if (!is(DualitySlip::write_without_step_gradient)) d_delta += along;
    if (!is(DualitySlip::decay_without_step_gradient)) d_delta += A * dg;
    const double d_dt = d_delta * (is(DualitySlip::step_slope_lost) ? 1.0 : logistic_of(time(row, h)));
    sums[0] += dg * (is(DualitySlip::rate_without_step) ? 1.0 : delta);
    sums[1] += d_dt;
    write("d.dt", row * H_ + h, d_dt, contract_.output);
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  DualitySlip slip_;
  std::int64_t T_, H_, G_, P_, N_;
  const float *x_ = given_input(call_, "x"), *dt_ = given_input(call_, "dt"),
              *bias_ = given_input(call_, "dt_bias");
  const float *A_log_ = given_input(call_, "A_log"), *B_ = given_input(call_, "B"),
              *C_ = given_input(call_, "C");
  const float *skip_ = given_input(call_, "skip"), *S_ = given_input(call_, "S");
  const float *d_y_ = given_input(call_, "d.y"), *d_S_ = given_input(call_, "d.S");
  std::vector<double> carried_, shared_;
};

}  // namespace

Outcome plain_reverse_duality(const OperatorArguments& call, const Contract& contract, DualitySlip slip) {
  PlainReverseHead(call, contract, slip).run();
  return {};
}

}  // namespace samestate::mutants
