#include "optimized/cpu/backward/state_space_duality.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/named_views.h"
#include "optimized/cpu/block.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

/// The tensors of a call, and the sums of each head of each sequence: of its rate, its bias and its skip.
struct ReverseDuality {
  explicit ReverseDuality(const OperatorArguments& c)
      : H(c.parameter("H")),
        G(c.parameter("G")),
        P(c.parameter("P")),
        N(c.parameter("N")),
        sequences(sequences_of(c)),
        x(given<3>(c, "x")),
        dt(given<3>(c, "dt")),
        B(given<3>(c, "B")),
        C(given<3>(c, "C")),
        S(given<3>(c, "S")),
        d_y(given<3>(c, "d.y")),
        d_last(given<3>(c, "d.S")),
        dt_bias(given<1>(c, "dt_bias")),
        A_log(given<1>(c, "A_log")),
        skip(given<1>(c, "skip")),
        d_x(view_of<3>(c.output("d.x"))),
        d_dt(view_of<3>(c.output("d.dt"))),
        d_B(view_of<3>(c.output("d.B"))),
        d_C(view_of<3>(c.output("d.C"))),
        d_S(view_of<3>(c.output("d.S"))),
        sums(static_cast<std::size_t>(sequences * H * 3), 0.0F) {}

  [[nodiscard]] float* sums_of(std::int64_t n, std::int64_t head) { return sums.data() + (n * H + head) * 3; }

  std::int64_t H, G, P, N, sequences;
  View<const float, 3> x, dt, B, C, S, d_y, d_last;
  View<const float, 1> dt_bias, A_log, skip;
  View<float, 3> d_x, d_dt, d_B, d_C, d_S;
  std::vector<float> sums;
};

float dot_of(const float* x, const float* y, std::int64_t width) {
  float sum = 0.0F;
  for (std::int64_t i = 0; i < width; ++i) sum += x[i] * y[i];
  return sum;
}
/// y += factor x.
void add_scaled(float factor, const float* x, float* y, std::int64_t width) {
  for (std::int64_t i = 0; i < width; ++i) y[i] += factor * x[i];
}
/// The product of a matrix [rows, width] with a vector [width].
void matrix_vector(const Block& matrix, const float* x, float* y) {
  for (std::int64_t i = 0; i < matrix.rows; ++i) y[i] = dot_of(matrix.row(i), x, matrix.columns);
}

/// Scratch of one thread, which takes the heads of a group of one sequence one after another.
class ReverseGroup {
 public:
  ReverseGroup(ReverseDuality& all, const OperatorArguments& call, const Contract& contract)
      : of_(all), call_(call), contract_(contract) {}

  void run(std::int64_t n, std::int64_t group) {
    const std::int64_t N = of_.N, heads = of_.H / of_.G;
    at_ = tokens_of_sequence(call_, n);
    d_B_.resize(at_.count, N), d_C_.resize(at_.count, N);
    B_.resize(at_.count, N), C_.resize(at_.count, N);
    std::ranges::fill(d_B_.values, 0.0F), std::ranges::fill(d_C_.values, 0.0F);
    for (std::int64_t t = 0; t < at_.count; ++t) {
      for (std::int64_t s = 0; s < N; ++s) {
        B_.row(t)[s] = of_.B(at_.batch, at_.begin + t, group * N + s);
        C_.row(t)[s] = of_.C(at_.batch, at_.begin + t, group * N + s);
      }
    }
    for (std::int64_t h = group * heads; h < (group + 1) * heads; ++h) head(n, h);
    for (std::int64_t t = 0; t < at_.count; ++t) {
      round_values(d_B_.row(t), d_B_.row(t), N, contract_.output);
      round_values(d_C_.row(t), d_C_.row(t), N, contract_.output);
      for (std::int64_t s = 0; s < N; ++s) {
        of_.d_B(at_.batch, at_.begin + t, group * N + s) = d_B_.row(t)[s];
        of_.d_C(at_.batch, at_.begin + t, group * N + s) = d_C_.row(t)[s];
      }
    }
  }

 private:
  void head(std::int64_t n, std::int64_t h) {
    const std::int64_t T = at_.count, P = of_.P, N = of_.N, chunk = call_.chunk;
    load(h);
    const std::int64_t chunks = (T + chunk - 1) / chunk;
    starts_.resize(chunks * P + P, N);
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t s = 0; s < N; ++s) starts_.row(p)[s] = of_.S(n, h * P + p, s);
    }
    for (std::int64_t c = 0; c + 1 < chunks; ++c)
      pass_on(c * chunk, chunk, starts_.row(c * P), starts_.row((c + 1) * P));
    behind_.resize(P, N);
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t s = 0; s < N; ++s)
        behind_.row(p)[s] = of_.d_last.present() ? of_.d_last(n, h * P + p, s) : 0.0F;
    }
    float* const sums = of_.sums_of(n, h);
    for (std::int64_t c = chunks; c-- > 0;)
      reverse(h, c * chunk, std::min(chunk, T - c * chunk), starts_.row(c * P), sums);
    sums[0] *= rate_;
    for (std::int64_t p = 0; p < P; ++p) {
      round_values(behind_.row(p), behind_.row(p), N, contract_.state);
      for (std::int64_t s = 0; s < N; ++s) of_.d_S(n, h * P + p, s) = behind_.row(p)[s];
    }
  }

  void load(std::int64_t h) {
    const std::int64_t T = at_.count, P = of_.P;
    rate_ = -std::exp(of_.A_log(h));
    x_.resize(T, P), v_.resize(T, P), dy_.resize(T, P);
    delta_.resize(static_cast<std::size_t>(T)), g_.resize(static_cast<std::size_t>(T));
    for (std::int64_t t = 0; t < T; ++t) {
      const float delta = layer::softplus(of_.dt(at_.batch, at_.begin + t, h) + of_.dt_bias(h));
      delta_[static_cast<std::size_t>(t)] = delta;
      g_[static_cast<std::size_t>(t)] = delta * rate_;
      for (std::int64_t p = 0; p < P; ++p) {
        x_.row(t)[p] = of_.x(at_.batch, at_.begin + t, h * P + p);
        v_.row(t)[p] = delta * x_.row(t)[p];
        dy_.row(t)[p] = of_.d_y.present() ? of_.d_y(at_.batch, at_.begin + t, h * P + p) : 0.0F;
      }
    }
  }

  /// The decays of the n tokens from `begin` on: from the chunk's start through each token, and from behind each token to the
  /// chunk's end.
  void decays(std::int64_t begin, std::int64_t n) {
    from_start_.resize(static_cast<std::size_t>(n)), to_end_.resize(static_cast<std::size_t>(n));
    float sum = 0.0F;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += g_[static_cast<std::size_t>(begin + i)];
      from_start_[static_cast<std::size_t>(i)] = std::exp(sum);
    }
    sum = 0.0F;
    for (std::int64_t i = n; i-- > 0;) {
      to_end_[static_cast<std::size_t>(i)] = std::exp(sum);
      sum += g_[static_cast<std::size_t>(begin + i)];
    }
  }

  /// The state behind a chunk from that before it, both [P, N].
  void pass_on(std::int64_t begin, std::int64_t n, const float* before, float* after) {
    decays(begin, n);
    const float through = from_start_[static_cast<std::size_t>(n - 1)];
    const std::int64_t stride = starts_.stride;
    for (std::int64_t p = 0; p < of_.P; ++p) {
      for (std::int64_t s = 0; s < of_.N; ++s) after[p * stride + s] = through * before[p * stride + s];
      for (std::int64_t i = 0; i < n; ++i)
        add_scaled(to_end_[static_cast<std::size_t>(i)] * v_.row(begin + i)[p], B_.row(begin + i),
                   after + p * stride, of_.N);
    }
  }

  /// The chunk of n tokens from `begin` on, whose first state is `start`.
  void reverse(std::int64_t h, std::int64_t begin, std::int64_t n, const float* start, float* sums) {
    const std::int64_t P = of_.P, N = of_.N;
    decays(begin, n);
    start_.resize(P, N);
    for (std::int64_t p = 0; p < P; ++p) std::copy_n(start + p * starts_.stride, N, start_.row(p));
    d_v_.resize(n, P), read_.resize(1, P);
    std::vector<float>& dg = d_g_;
    dg.assign(static_cast<std::size_t>(n), 0.0F);
    // Of the states on both sides.
    float whole = 0.0F;
    for (std::int64_t p = 0; p < P; ++p) whole += dot_of(behind_.row(p), start_.row(p), N);
    whole *= from_start_[static_cast<std::size_t>(n - 1)];
    float writes_before = 0.0F;
    for (std::int64_t j = 0; j < n; ++j) {
      const float end = to_end_[static_cast<std::size_t>(j)];
      dg[static_cast<std::size_t>(j)] = whole + writes_before;
      matrix_vector(behind_, B_.row(begin + j), d_v_.row(j));
      for (std::int64_t p = 0; p < P; ++p) {
        d_v_.row(j)[p] *= end;
        add_scaled(end * v_.row(begin + j)[p], behind_.row(p), d_B_.row(begin + j), N);
      }
      writes_before += dot_of(v_.row(begin + j), d_v_.row(j), P);
    }
    float reads_behind = 0.0F;
    for (std::int64_t i = n; i-- > 0;) {
      const float first = from_start_[static_cast<std::size_t>(i)];
      matrix_vector(start_, C_.row(begin + i), read_.row(0));
      reads_behind += first * dot_of(dy_.row(begin + i), read_.row(0), P);
      dg[static_cast<std::size_t>(i)] += reads_behind;
      for (std::int64_t p = 0; p < P; ++p)
        add_scaled(first * dy_.row(begin + i)[p], start_.row(p), d_C_.row(begin + i), N);
    }
    inside(begin, n);
    for (std::int64_t i = 0; i < n; ++i) write(h, begin + i, i, sums);
    const float through = from_start_[static_cast<std::size_t>(n - 1)];
    for (std::int64_t p = 0; p < P; ++p) {
      for (std::int64_t s = 0; s < N; ++s) behind_.row(p)[s] *= through;
      for (std::int64_t i = 0; i < n; ++i)
        add_scaled(from_start_[static_cast<std::size_t>(i)] * dy_.row(begin + i)[p], C_.row(begin + i),
                   behind_.row(p), N);
    }
  }

  /// Products of the chunk's tokens with each other: token i reads what token j <= i wrote.
  void inside(std::int64_t begin, std::int64_t n) {
    const std::int64_t P = of_.P, N = of_.N;
    crossing_.assign(static_cast<std::size_t>(n), 0.0F);
    for (std::int64_t i = 0; i < n; ++i) {
      float log_decay = 0.0F;
      for (std::int64_t j = i; j >= 0; --j) {
        const float decay = std::exp(log_decay);
        const float along = decay * dot_of(C_.row(begin + i), B_.row(begin + j), N);
        const float written = dot_of(dy_.row(begin + i), v_.row(begin + j), P);
        add_scaled(along, dy_.row(begin + i), d_v_.row(j), P);
        add_scaled(decay * written, B_.row(begin + j), d_C_.row(begin + i), N);
        add_scaled(decay * written, C_.row(begin + i), d_B_.row(begin + j), N);
        crossing_[static_cast<std::size_t>(j)] = along * written;
        log_decay += g_[static_cast<std::size_t>(begin + j)];
      }
      // Token t's decay is on the way of all writes before it to the reads of token i >= t.
      float before = 0.0F;
      for (std::int64_t t = 1; t <= i; ++t) {
        before += crossing_[static_cast<std::size_t>(t - 1)];
        d_g_[static_cast<std::size_t>(t)] += before;
      }
    }
  }

  void write(std::int64_t h, std::int64_t t, std::int64_t i, float* sums) {
    const std::int64_t P = of_.P, at = at_.begin + t;
    const float delta = delta_[static_cast<std::size_t>(t)], dg = d_g_[static_cast<std::size_t>(i)];
    const float d_delta = dot_of(d_v_.row(i), x_.row(t), P) + rate_ * dg;
    const float d_dt = d_delta * layer::logistic(of_.dt(at_.batch, at, h) + of_.dt_bias(h));
    sums[0] += delta * dg;
    sums[1] += d_dt;
    sums[2] += dot_of(dy_.row(t), x_.row(t), P);
    round_values(&d_dt, &of_.d_dt(at_.batch, at, h), 1, contract_.output);
    for (std::int64_t p = 0; p < P; ++p) {
      const float dx = delta * d_v_.row(i)[p] + of_.skip(h) * dy_.row(t)[p];
      round_values(&dx, &of_.d_x(at_.batch, at, h * P + p), 1, contract_.output);
    }
  }

  ReverseDuality& of_;
  const OperatorArguments& call_;
  const Contract& contract_;
  TokenRange at_;
  float rate_ = 0.0F;
  Block B_, C_, x_, v_, dy_, d_B_, d_C_, d_v_, read_, starts_, start_, behind_;
  std::vector<float> delta_, g_, d_g_, from_start_, to_end_, crossing_;
};

}  // namespace

Outcome state_space_duality_backward_chunks(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  ReverseDuality all(call);
  for_each_task(all.sequences * all.G, call.threads, [&] {
    return [&, group = ReverseGroup(all, call, contract)](std::int64_t task) mutable {
      group.run(task / all.G, task % all.G);
    };
  });
  const View<float, 1> outputs[] = {view_of<1>(call.output("d.A_log")), view_of<1>(call.output("d.dt_bias")),
                                    view_of<1>(call.output("d.skip"))};
  for (std::int64_t h = 0; h < all.H; ++h) {
    for (std::int64_t j = 0; j < 3; ++j) {
      float sum = 0.0F;
      for (std::int64_t n = 0; n < all.sequences; ++n) sum += all.sums_of(n, h)[j];
      outputs[j](h) = sum;
    }
  }
  return {};
}

}  // namespace samestate::cpu
