#include "oracles/proofs/identities/dendritic_loops.h"

#include <cmath>
#include <utility>

#include "reference/scalars.h"

namespace samestate {
namespace {

/// A dense tensor, last axis innermost.
template <class Scalar>
struct LoopTensor {
  std::vector<Index> shape;
  std::vector<Scalar> data;

  LoopTensor() = default;
  explicit LoopTensor(std::vector<Index> extents) : shape(std::move(extents)) {
    Index size = 1;
    for (const Index n : shape) size *= n;
    data.assign(static_cast<std::size_t>(size), Scalar(0));
  }
  template <class... I>
  Scalar& operator()(I... index) {
    const Index at[] = {static_cast<Index>(index)...};
    Index flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + at[d];
    return data[static_cast<std::size_t>(flat)];
  }
};

/// y(b, t, i) = sum_j x(b, t, j) w(i, j).
template <class Scalar>
LoopTensor<Scalar> loop_linear(LoopTensor<Scalar>& x, const Matrix<Scalar>& w) {
  LoopTensor<Scalar> y({x.shape[0], x.shape[1], w.rows()});
  for (Index b = 0; b < x.shape[0]; ++b) {
    for (Index t = 0; t < x.shape[1]; ++t) {
      for (Index i = 0; i < w.rows(); ++i) {
        for (Index j = 0; j < w.cols(); ++j) y(b, t, i) += x(b, t, j) * w(i, j);
      }
    }
  }
  return y;
}

/// silu of the causal correlation over t; zeros before the first token.
template <class Scalar>
LoopTensor<Scalar> loop_convolution(LoopTensor<Scalar>& x, const Matrix<Scalar>& w) {
  using std::exp;
  LoopTensor<Scalar> y(x.shape);
  for (Index b = 0; b < x.shape[0]; ++b) {
    for (Index t = 0; t < x.shape[1]; ++t) {
      for (Index c = 0; c < x.shape[2]; ++c) {
        Scalar sum(0);
        for (Index j = 0; j < w.cols(); ++j) {
          const Index from = t - w.cols() + 1 + j;
          if (from >= 0) sum += w(c, j) * x(b, from, c);
        }
        y(b, t, c) = sum / (Scalar(1) + exp(Scalar(-sum)));
      }
    }
  }
  return y;
}

/// The channels [begin, begin + width) of one token, divided by their length.
template <class Scalar>
void loop_l2norm(LoopTensor<Scalar>& x, Index row, Index t, Index begin, Index width) {
  using std::sqrt;
  Scalar sum(0);
  for (Index i = 0; i < width; ++i) sum += x(row, t, begin + i) * x(row, t, begin + i);
  const Scalar length = sqrt(Scalar(sum + Scalar(1e-6)));
  for (Index i = 0; i < width; ++i) x(row, t, begin + i) = x(row, t, begin + i) / length;
}

/// The layer on a batch, step by step as EQUATIONS 7.3 numbers them; a step reads what earlier ones left.
template <class Scalar>
class DendriticLoops {
 public:
  /// batch: B of [T, D].
  DendriticLoops(const DendriticParameters<Scalar>& parameters, const std::vector<Matrix<Scalar>>& batch,
                 DendriticMistake mistake)
      : p(parameters), mistake_(mistake), B(static_cast<Index>(batch.size())), T(batch.front().rows()) {
    project(batch);
    route();
    expand();
    convolve();
    decay();
    recur();
  }

  [[nodiscard]] DendriticLoopResult<Scalar> result() {
    DendriticLoopResult<Scalar> out;
    for (Index b = 0; b < B; ++b) {
      out.a.push_back(merged(b));
      out.output.push_back(output(b, out.a.back()));
      out.state.push_back(states(b));
    }
    return out;
  }

 private:
  [[nodiscard]] bool is(DendriticMistake m) const { return mistake_ == m; }

  /// Step 1: the projections of x.
  void project(const std::vector<Matrix<Scalar>>& batch) {
    LoopTensor<Scalar> x({B, T, D});
    for (Index b = 0; b < B; ++b) {
      for (Index t = 0; t < T; ++t) {
        for (Index i = 0; i < D; ++i) x(b, t, i) = batch[static_cast<std::size_t>(b)](t, i);
      }
    }
    q = loop_linear(x, p.q_proj);
    k = loop_linear(x, p.k_proj);
    v = loop_linear(x, p.v_proj);
    gate = loop_linear(x, p.g_proj);
    a_raw = loop_linear(x, p.a_proj);
    b_raw = loop_linear(x, p.b_proj);
  }

  /// Steps 2-4: the weights omega and the mask mu of the branches.
  void route() {
    for (Index b = 0; b < B; ++b) {
      for (Index t = 0; t < T; ++t) {
        for (Index h = 0; h < H; ++h) route(b, t, h);
      }
    }
  }
  void route(Index b, Index t, Index h) {
    using std::exp;
    std::vector<Scalar> weight(static_cast<std::size_t>(E - Es), Scalar(0));
    Scalar all(0), chosen(0), total(0);
    for (Index i = 0; i < E - Es; ++i) {
      Scalar logit(0);
      for (Index c = 0; c < d; ++c) logit += q(b, t, h * d + c) * p.router(i, c);
      weight[static_cast<std::size_t>(i)] = exp(logit);
      all += weight[static_cast<std::size_t>(i)];
    }
    std::vector<bool> in(weight.size());
    for (std::size_t i = 0; i < weight.size(); ++i) {
      Index before = 0;  // how many are chosen before i
      for (std::size_t j = 0; j < weight.size(); ++j) {
        if (weight[j] > weight[i] || (weight[j] == weight[i] && j < i)) ++before;
      }
      in[i] = before < K;
      if (in[i]) chosen += weight[i];
    }
    const Scalar shared = is(DendriticMistake::literal_weights) ? all : chosen / Scalar(double(Es));
    for (Index e = 0; e < E; ++e) {
      const auto i = static_cast<std::size_t>(e - Es);
      const bool active = e < Es || in[i];
      const Index to = e >= Es && is(DendriticMistake::routed_index_not_shifted) ? (e - Es) : e;
      if (!active) continue;
      mu(to, b, t, h) = Scalar(1);
      omega(to, b, t, h) = e >= Es ? weight[i] : (K > 0 ? shared : Scalar(1));
      if (is(DendriticMistake::equal_thirds)) omega(to, b, t, h) = Scalar(1);
    }
    for (Index e = 0; e < E; ++e) total += omega(e, b, t, h);
    for (Index e = 0; e < E; ++e) omega(e, b, t, h) = omega(e, b, t, h) / total;
  }

  /// Step 5: q, k and v of every branch, in rows e B + b.
  void expand() {
    for (Index e = 0; e < E; ++e) {
      for (Index b = 0; b < B; ++b) {
        for (Index t = 0; t < T; ++t) {
          for (Index h = 0; h < H; ++h) {
            const auto head = static_cast<std::size_t>(h);
            for (Index c = 0; c < d; ++c) {
              for (Index j = 0; j < d; ++j) {
                qe(e * B + b, t, h * d + c) += q(b, t, h * d + j) * p.q_expansion[head](e * d + c, j);
                ke(e * B + b, t, h * d + c) += k(b, t, h * d + j) * p.k_expansion[head](e * d + c, j);
              }
            }
            for (Index c = 0; c < dv; ++c) ve(e * B + b, t, h * dv + c) = v(b, t, h * dv + c);
          }
        }
      }
    }
  }

  /// Steps 7 and 8: convolution, then the mask.
  void convolve() {
    const auto mask = [&](LoopTensor<Scalar>& y, Index width) {
      for (Index e = 0; e < E; ++e) {
        for (Index b = 0; b < B; ++b) {
          for (Index t = 0; t < T; ++t) {
            for (Index c = 0; c < H * width; ++c) y(e * B + b, t, c) *= mu(e, b, t, c / width);
          }
        }
      }
    };
    const auto mask_all = [&] { mask(qe, d), mask(ke, d), mask(ve, dv); };
    if (is(DendriticMistake::mask_before_convolution)) mask_all();
    qe = loop_convolution(qe, p.q_conv);
    ke = loop_convolution(ke, p.k_conv);
    ve = loop_convolution(ve, p.v_conv);
    mask_all();
    if (is(DendriticMistake::l2norm_before_windowing)) {
      for (Index row = 0; row < E * B; ++row) {
        for (Index t = 0; t < T; ++t) {
          for (Index h = 0; h < H; ++h) loop_l2norm(qe, row, t, h * d, d), loop_l2norm(ke, row, t, h * d, d);
        }
      }
    }
  }

  /// Step 9: write strength and log-decay.
  void decay() {
    using std::exp;
    using std::log;
    for (Index b = 0; b < B; ++b) {
      for (Index t = 0; t < T; ++t) {
        for (Index e = 0; e < E; ++e) {
          for (Index h = 0; h < H; ++h) {
            const Index m = e * H + h;
            beta(b, t, m) = mu(e, b, t, h) / (Scalar(1) + exp(Scalar(-b_raw(b, t, m))));
            const Scalar soft = log(Scalar(Scalar(1) + exp(Scalar(a_raw(b, t, m) + p.dt_bias(m)))));
            g(b, t, m) = -exp(p.A_log(m)) * soft * mu(e, b, t, h);
          }
        }
      }
    }
  }

  /// Steps 10-14: the rule on every window of every branch, from empty states.
  void recur() {
    using std::exp;
    using std::sqrt;
    LoopTensor<Scalar> qw({1, 1, w}), kw({1, 1, w});
    const Scalar scale =
        Scalar(1) / sqrt(Scalar(static_cast<double>(is(DendriticMistake::scale_of_head_width) ? d : w)));
    for (Index b = 0; b < B; ++b) {
      for (Index t = 0; t < T; ++t) {
        for (Index n = 0; n < N; ++n) {
          for (Index m = 0; m < EH; ++m) {
            const Index vh = n * EH + m, row = m / H * B + b, h = m % H;
            const Index tile = is(DendriticMistake::interleaved_values) ? vh / N : vh % EH;
            for (Index i = 0; i < w; ++i) {
              qw(0, 0, i) = qe(row, t, h * d + n * s + i);
              kw(0, 0, i) = ke(row, t, h * d + n * s + i);
            }
            if (!is(DendriticMistake::l2norm_before_windowing)) {
              loop_l2norm(qw, 0, 0, 0, w);
              loop_l2norm(kw, 0, 0, 0, w);
            }
            const Scalar alpha =
                is(DendriticMistake::decay_as_multiplier) ? g(b, t, tile) : exp(g(b, t, tile));
            for (Index j = 0; j < dv; ++j) {
              Scalar predicted(0), read(0);
              for (Index i = 0; i < w; ++i) {
                S(b, vh, i, j) *= alpha;
                predicted += S(b, vh, i, j) * kw(0, 0, i);
              }
              if (is(DendriticMistake::no_delta_term)) predicted = Scalar(0);
              const Scalar value = ve(tile / H * B + b, t, (tile % H) * dv + j);
              const Scalar u = beta(b, t, tile) * (value - predicted);
              for (Index i = 0; i < w; ++i) {
                S(b, vh, i, j) += kw(0, 0, i) * u;
                read += S(b, vh, i, j) * qw(0, 0, i);
              }
              o(b, t, vh, j) = scale * read;
            }
          }
        }
      }
    }
  }

  /// Steps 15 and 16: a of row b, the windows summed and the branches mixed; [T, H dv].
  Matrix<Scalar> merged(Index b) {
    Matrix<Scalar> a = Matrix<Scalar>::Zero(T, H * dv);
    for (Index t = 0; t < T; ++t) {
      for (Index h = 0; h < H; ++h) {
        for (Index c = 0; c < dv; ++c) {
          Scalar& mixed = a(t, h * dv + c);
          for (Index e = 0; e < E; ++e) {
            for (Index n = 0; n < N; ++n) mixed += omega(e, b, t, h) * o(b, t, n * EH + e * H + h, c);
          }
          if (is(DendriticMistake::mean_over_windows)) mixed = mixed / Scalar(static_cast<double>(N));
        }
      }
    }
    return a;
  }

  /// Steps 17 and 18: norm, gate and projection; [T, D].
  Matrix<Scalar> output(Index b, const Matrix<Scalar>& a) {
    using std::exp;
    using std::sqrt;
    LoopTensor<Scalar> y({1, T, H * dv});
    for (Index t = 0; t < T; ++t) {
      for (Index h = 0; h < H; ++h) {
        Scalar square(0);
        for (Index c = 0; c < dv; ++c) square += a(t, h * dv + c) * a(t, h * dv + c);
        const Scalar mean = square / Scalar(static_cast<double>(dv));
        const Scalar root = sqrt(Scalar(mean + p.norm_epsilon));
        for (Index c = 0; c < dv; ++c) {
          const Scalar raw = gate(b, t, h * dv + c);
          y(0, t, h * dv + c) =
              a(t, h * dv + c) / root * p.o_norm(c) * (raw / (Scalar(1) + exp(Scalar(-raw))));
        }
      }
    }
    LoopTensor<Scalar> projected = loop_linear(y, p.o_proj);
    Matrix<Scalar> output(T, D);
    for (Index t = 0; t < T; ++t) {
      for (Index i = 0; i < D; ++i) output(t, i) = projected(0, t, i);
    }
    return output;
  }

  /// N E H states of row b, [w, dv] each.
  std::vector<Matrix<Scalar>> states(Index b) {
    std::vector<Matrix<Scalar>> states;
    for (Index vh = 0; vh < N * EH; ++vh) {
      Matrix<Scalar> one(w, dv);
      for (Index i = 0; i < w; ++i) {
        for (Index j = 0; j < dv; ++j) one(i, j) = S(b, vh, i, j);
      }
      states.push_back(std::move(one));
    }
    return states;
  }

  const DendriticParameters<Scalar>& p;
  DendriticMistake mistake_;
  Index B, T;
  Index D = p.sizes.model_width, H = p.sizes.heads, d = p.sizes.head_width, dv = p.sizes.value_width;
  Index E = p.sizes.branch.branches, Es = p.sizes.branch.shared, K = p.sizes.branch.routed, EH = E * H;
  Index N = p.sizes.windows, s = N == 1 ? d : (d - p.sizes.overlap) / N, w = N == 1 ? d : s + p.sizes.overlap;
  LoopTensor<Scalar> q, k, v, gate, a_raw, b_raw;            // of the tokens: [B, T, .]
  LoopTensor<Scalar> omega{{E, B, T, H}}, mu{{E, B, T, H}};  // of the branches
  LoopTensor<Scalar> qe{{E * B, T, H*d}}, ke{{E * B, T, H*d}}, ve{{E * B, T, H*dv}};
  LoopTensor<Scalar> beta{{B, T, EH}}, g{{B, T, EH}};
  LoopTensor<Scalar> S{{B, N*EH, w, dv}}, o{{B, T, N*EH, dv}};
};

}  // namespace

template <class Scalar>
DendriticLoopResult<Scalar> dendritic_loops(const DendriticParameters<Scalar>& parameters,
                                            const std::vector<Matrix<Scalar>>& batch,
                                            DendriticMistake mistake) {
  return DendriticLoops<Scalar>(parameters, batch, mistake).result();
}

template DendriticLoopResult<double> dendritic_loops(const DendriticParameters<double>&,
                                                     const std::vector<Matrix<double>>&, DendriticMistake);
template DendriticLoopResult<Decimal50> dendritic_loops(const DendriticParameters<Decimal50>&,
                                                        const std::vector<Matrix<Decimal50>>&,
                                                        DendriticMistake);

}  // namespace samestate
