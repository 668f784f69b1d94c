#include "fuzz/mutants/backward/plain_reverse_scan.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "optimized/cpu/rounding.h"

namespace samestate::mutants {
namespace {

double sigma_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// The factor of B u with zero-order hold, and its derivative by A.
struct Held {
  double factor, by_A;
};

Held held(double delta, double A) {
  const double x = delta * A;
  if (std::abs(x) < 1e-3)
    return {delta * (1.0 + x / 2.0 + x * x / 6.0), delta * delta * (0.5 + x / 3.0 + x * x / 8.0)};
  const double factor = std::expm1(x) / A;
  return {factor, (delta * std::exp(x) - factor) / A};
}

const float* input_of(const OperatorArguments& call, std::string_view name) {
  const auto at = std::ranges::find(call.inputs, name, &NamedTensor<const float>::name);
  return at == call.inputs.end() ? nullptr : at->data;
}

class PlainReverse {
 public:
  PlainReverse(const OperatorArguments& call, const Contract& contract, ScanSlip slip)
      : call_(call),
        contract_(contract),
        slip_(slip),
        T_(call.tokens),
        D_(call.parameter("D")),
        N_(call.parameter("N")),
        hold_(call.parameter("hold") != 0) {}

  void run() {
    std::vector<double> sums(static_cast<std::size_t>(D_ * (N_ + 2)), 0.0);
    carried_.assign(static_cast<std::size_t>(D_ * N_), 0.0);
    for (std::int64_t b = 0; b < call_.batch; ++b) {
      shared_.assign(static_cast<std::size_t>(2 * T_ * N_), 0.0);
      for (std::int64_t d = 0; d < D_; ++d) channel(b, d, sums.data() + d * (N_ + 2));
      for (std::int64_t i = 0; i < T_ * N_; ++i) {
        write("d.B", b * T_ * N_ + i, shared_[static_cast<std::size_t>(i)], contract_.output);
        write("d.C", b * T_ * N_ + i, shared_[static_cast<std::size_t>(T_ * N_ + i)], contract_.output);
      }
    }
    for (std::int64_t d = 0; d < D_; ++d) {
      const double* const sum = sums.data() + d * (N_ + 2);
      for (std::int64_t s = 0; s < N_; ++s) {
        const double factor = is(ScanSlip::rate_without_itself) ? 1.0 : rate(d, s);
        write("d.A_log", d * N_ + s, sum[s] * factor, Format::fp32);
      }
      write("d.dt_bias", d, sum[N_], Format::fp32);
      write("d.skip", d, sum[N_ + 1], Format::fp32);
    }
  }

 private:
  [[nodiscard]] bool is(ScanSlip slip) const { return slip_ == slip; }
  void write(std::string_view name, std::int64_t at, double x, Format format) const {
    const float y = static_cast<float>(x);
    cpu::round_values(&y, call_.output(name).data + at, 1, format);
  }
  [[nodiscard]] double rate(std::int64_t d, std::int64_t s) const {
    return -std::exp(static_cast<double>(A_log_[d * N_ + s]));
  }
  /// dt and its bias, before the softplus.
  [[nodiscard]] double time(std::int64_t row, std::int64_t d) const {
    return static_cast<double>(dt_[row * D_ + d]) + static_cast<double>(bias_[d]);
  }
  [[nodiscard]] double decay(std::int64_t row, std::int64_t d, std::int64_t s) const {
    return std::exp(softplus_of(time(row, d)) * rate(d, s));
  }

  /// The state before every token, and behind the last.
  [[nodiscard]] std::vector<double> states_of(std::int64_t b, std::int64_t d) const {
    const auto N = static_cast<std::size_t>(N_);
    std::vector<double> h(static_cast<std::size_t>(T_ + 1) * N);
    for (std::size_t s = 0; s < N; ++s)
      h[s] = static_cast<double>(h_[(b * D_ + d) * N_ + static_cast<std::int64_t>(s)]);
    for (std::int64_t t = 0; t < T_; ++t) advance(b, t, d, h.data() + t * N_, h.data() + (t + 1) * N_);
    return h;
  }
  void advance(std::int64_t b, std::int64_t t, std::int64_t d, const double* from, double* to) const {
    const std::int64_t row = b * T_ + t;
    const double delta = softplus_of(time(row, d)), u = static_cast<double>(u_[row * D_ + d]);
    for (std::int64_t s = 0; s < N_; ++s) {
      const double A = rate(d, s), factor = hold_ ? held(delta, A).factor : delta;
      to[s] = std::exp(delta * A) * from[s] + factor * static_cast<double>(B_[row * N_ + s]) * u;
    }
  }

  void channel(std::int64_t b, std::int64_t d, double* sums) {
    const std::int64_t chunk = std::max<std::int64_t>(call_.chunk, 1);
    const std::vector<double> h = states_of(b, d);
    double* const dh = carried_.data() + d * N_;
    for (std::int64_t s = 0; s < N_; ++s) {
      const double last = d_h_ != nullptr ? static_cast<double>(d_h_[(b * D_ + d) * N_ + s]) : 0.0;
      dh[s] = last + (is(ScanSlip::carried_into_next_sequence) ? dh[s] : 0.0);
    }
    std::vector<double> before(static_cast<std::size_t>(N_)), after = before;
    for (std::int64_t t = T_; t-- > 0;) {
      std::copy_n(h.data() + t * N_, N_, before.data());
      if (is(ScanSlip::state_of_the_chunk_before) && t >= chunk) {
        const std::int64_t begin = t / chunk * chunk;
        std::copy_n(h.data() + (begin - chunk) * N_, N_, before.data());
        for (std::int64_t i = begin; i < t; ++i) {
          advance(b, i, d, before.data(), after.data());
          std::swap(before, after);
        }
      }
      advance(b, t, d, before.data(), after.data());
      token(b, t, d, before.data(), after.data(), dh, sums);
    }
    for (std::int64_t s = 0; s < N_; ++s) {
      const double kept =
          is(ScanSlip::last_decay_lost) && T_ > 0 ? dh[s] / std::max(decay(b * T_, d, s), 1e-30) : dh[s];
      write("d.h", (b * D_ + d) * N_ + s, kept, contract_.state);
    }
  }

  void token(std::int64_t b, std::int64_t t, std::int64_t d, const double* before, const double* after,
             double* dh, double* sums) {
    const std::int64_t row = b * T_ + t, at = row * D_ + d, chunk = std::max<std::int64_t>(call_.chunk, 1);
    const double delta = softplus_of(time(row, d)), u = static_cast<double>(u_[at]),
                 z = static_cast<double>(z_[at]);
    const double d_out = d_out_ != nullptr ? static_cast<double>(d_out_[at]) : 0.0;
    const double dy = d_out * (is(ScanSlip::gate_lost) ? 1.0 : z * sigma_of(z)),
                 skip = static_cast<double>(skip_[d]);
    const bool reaches = !is(ScanSlip::last_token_of_chunk_lost) || (t % chunk != chunk - 1 && t != T_ - 1);
    double y = 0.0, du = 0.0, d_delta = 0.0;
    for (std::int64_t s = 0; s < N_; ++s) {
      const double A = rate(d, s), a = std::exp(delta * A);
      const double B = static_cast<double>(B_[row * N_ + s]), C = static_cast<double>(C_[row * N_ + s]);
      const Held of = hold_ ? held(delta, A) : Held{delta, 0.0};
      const double by_step = hold_ && !is(ScanSlip::hold_by_step_is_one) ? a : 1.0;
      y += C * after[s];
      if (reaches) dh[s] += dy * C;
      double& d_B = shared_[static_cast<std::size_t>(t * N_ + s)];
      double& d_C = shared_[static_cast<std::size_t>((T_ + t) * N_ + s)];
      if (is(ScanSlip::channels_overwritten)) d_B = d_C = 0.0;
      d_C += dy * after[s];
      d_B += dh[s] * of.factor * u;
      du += dh[s] * of.factor * B;
      const double along = dh[s] * a * (is(ScanSlip::state_after_for_state_before) ? after[s] : before[s]);
      const double df = dh[s] * B * u;
      if (!is(ScanSlip::decay_without_step_gradient)) d_delta += along * A;
      if (!is(ScanSlip::input_without_step_gradient)) d_delta += df * by_step;
      sums[s] += along * (is(ScanSlip::rate_without_step) ? 1.0 : delta);
      if (!is(ScanSlip::hold_slope_lost)) sums[s] += df * of.by_A;
      if (is(ScanSlip::decay_of_the_token_before)) {
        dh[s] *= t > 0 ? decay(row - 1, d, s) : a;
      } else if (!is(ScanSlip::decay_lost)) {
        dh[s] *= a;
      }
    }
    if (!is(ScanSlip::gate_of_sum_without_skip)) y += skip * u;
    if (!is(ScanSlip::skip_without_input_gradient)) du += skip * dy;
    const double d_dt = d_delta * (is(ScanSlip::step_slope_lost) ? 1.0 : sigma_of(time(row, d)));
    sums[N_] += d_dt;
    sums[N_ + 1] += dy * u;
    const double slope =
        sigma_of(z) * (is(ScanSlip::slope_of_logistic) ? 1.0 : 1.0 + z * (1.0 - sigma_of(z)));
    write("d.u", at, du, contract_.output);
    write("d.dt", at, d_dt, contract_.output);
    write("d.z", at, d_out * y * slope, contract_.output);
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  ScanSlip slip_;
  std::int64_t T_, D_, N_;
  bool hold_;
  const float *u_ = input_of(call_, "u"), *dt_ = input_of(call_, "dt"), *bias_ = input_of(call_, "dt_bias");
  const float *A_log_ = input_of(call_, "A_log"), *B_ = input_of(call_, "B"), *C_ = input_of(call_, "C");
  const float *skip_ = input_of(call_, "skip"), *z_ = input_of(call_, "z"), *h_ = input_of(call_, "h");
  const float *d_out_ = input_of(call_, "d.out"), *d_h_ = input_of(call_, "d.h");
  std::vector<double> carried_, shared_;
};

}  // namespace

Outcome plain_reverse_scan(const OperatorArguments& call, const Contract& contract, ScanSlip slip) {
  PlainReverse(call, contract, slip).run();
  return {};
}

}  // namespace samestate::mutants
