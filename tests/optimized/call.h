#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/kernel.h"

/// A call of a kernel with memory of its own, and what the equations say of it in double, as plain loops.
namespace samestate::testing {

struct Shape {
  std::int64_t B = 1, T = 1, Hk = 1, Hv = 1, dk = 1, dv = 1;
  std::vector<std::int64_t> offsets{};  ///< cu_seqlens; empty for dense batches
};

inline bool has_delta(std::string_view system) { return system.find("delta") != system.npos; }
inline bool has_decay(std::string_view system) {
  return system == "gated_delta_rule" || system == "retention";
}

inline const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw std::out_of_range(std::string(name));
}

struct Call {
  Shape shape;
  std::vector<float> q, k, v, g, beta, initial_state, o, final_state;
  float scale = 1.0F;
  std::int64_t chunk = 0;
  HeadMap head_map = HeadMap::interleaved;
  bool l2norm = false;
  int threads = 1;

  [[nodiscard]] std::int64_t sequences() const {
    return shape.offsets.empty() ? shape.B : static_cast<std::int64_t>(shape.offsets.size()) - 1;
  }

  /// Outputs are poisoned on every call, but for rows of no packed sequence, which are zero and must stay so.
  /// The views point into this object.
  [[nodiscard]] Arguments arguments() {
    const auto [B, T, Hk, Hv, dk, dv, offsets] = shape;
    const std::int64_t N = sequences();
    o.assign(static_cast<std::size_t>(B * T * Hv * dv), std::numeric_limits<float>::quiet_NaN());
    if (!offsets.empty()) {
      std::fill_n(o.begin(), offsets.front() * Hv * dv, 0.0F);
      std::fill(o.begin() + offsets.back() * Hv * dv, o.end(), 0.0F);
    }
    final_state.assign(static_cast<std::size_t>(N * Hv * dk * dv), std::numeric_limits<float>::quiet_NaN());
    Arguments a;
    a.q = row_major<const float, 4>(q.data(), {B, T, Hk, dk});
    a.k = row_major<const float, 4>(k.data(), {B, T, Hk, dk});
    a.v = row_major<const float, 4>(v.data(), {B, T, Hv, dv});
    if (!g.empty()) a.g = row_major<const float, 3>(g.data(), {B, T, Hv});
    if (!beta.empty()) a.beta = row_major<const float, 3>(beta.data(), {B, T, Hv});
    if (!initial_state.empty()) {
      a.initial_state = row_major<const float, 4>(initial_state.data(), {N, Hv, dk, dv});
    }
    if (!shape.offsets.empty()) {
      a.cu_seqlens = row_major<const std::int64_t, 1>(shape.offsets.data(), {N + 1});
    }
    a.o = row_major<float, 4>(o.data(), {B, T, Hv, dv});
    a.final_state = row_major<float, 4>(final_state.data(), {N, Hv, dk, dv});
    a.scale = scale;
    a.chunk = chunk;
    a.head_map = head_map;
    a.l2norm = l2norm;
    a.threads = threads;
    return a;
  }

  Outcome run(const Kernel& kernel, const Contract& contract = {}) {
    return kernel.run(arguments(), contract);
  }
};

/// Ordinary data: keys of length about 1, g in (-0.1, 0], beta in (0, 1). Or `exact`: q, v and the state in
/// {-1, 0, 1}, keys of one entry +1 or -1, beta in {0, 1}, and g 0 or, at one token in 8, a hard reset: every
/// sum is then a small integer and every form must give the same bits.
inline Call make_call(std::string_view system, const Shape& shape, std::int64_t chunk, bool exact = false,
                      std::uint32_t seed = 1) {
  std::mt19937 bits(seed);
  const auto uniform = [&] { return static_cast<float>(bits() >> 8U) * 0x1p-24F; };
  const auto fill = [&](std::vector<float>& x, std::int64_t count, auto value) {
    x.resize(static_cast<std::size_t>(count));
    for (float& element : x) element = value();
  };
  const auto signed_value = [&] {
    return exact ? static_cast<float>(static_cast<int>(bits() % 3U) - 1) : 2.0F * uniform() - 1.0F;
  };
  const auto [B, T, Hk, Hv, dk, dv, offsets] = shape;
  Call call;
  call.shape = shape;
  call.chunk = chunk;
  call.scale = exact ? 0.5F : 1.0F / std::sqrt(static_cast<float>(dk));
  fill(call.q, B * T * Hk * dk, signed_value);
  fill(call.v, B * T * Hv * dv, signed_value);
  fill(call.k, B * T * Hk * dk,
       [&, size = std::sqrt(3.0F / static_cast<float>(dk))] { return exact ? 0.0F : size * signed_value(); });
  for (std::int64_t row = 0; exact && row < B * T * Hk; ++row) {
    call.k[row * dk + bits() % dk] = bits() % 2U == 0 ? 1.0F : -1.0F;
  }
  if (has_decay(system)) {
    fill(call.g, B * T * Hv, [&] { return exact ? (bits() % 8U == 0 ? -1e38F : 0.0F) : -0.1F * uniform(); });
  }
  if (has_delta(system)) {
    fill(call.beta, B * T * Hv, [&] { return exact ? static_cast<float>(bits() % 2U) : uniform(); });
  }
  fill(call.initial_state, call.sequences() * Hv * dk * dv, signed_value);
  if (offsets.empty()) return call;
  // Tokens of no sequence may hold anything.
  for (std::vector<float>* x : {&call.q, &call.k, &call.v, &call.g, &call.beta}) {
    const std::int64_t row = static_cast<std::int64_t>(x->size()) / std::max<std::int64_t>(T, 1);
    std::fill_n(x->begin(), offsets.front() * row, std::numeric_limits<float>::quiet_NaN());
    std::fill(x->begin() + offsets.back() * row, x->end(), std::numeric_limits<float>::quiet_NaN());
  }
  return call;
}

struct Expected {
  std::vector<double> o, state;
};

/// EQUATIONS 5.5 token by token in double; o is zero where no packed sequence is.
inline Expected expected_of(const Call& call, bool delta) {
  const auto [B, T, Hk, Hv, dk, dv, offsets] = call.shape;
  Expected expected;
  expected.o.assign(static_cast<std::size_t>(B * T * Hv * dv), 0.0);
  expected.state.assign(static_cast<std::size_t>(call.sequences() * Hv * dk * dv), 0.0);
  const auto normalised = [&](const float* x) {
    std::vector<double> y(x, x + dk);
    double sum = 0;
    for (const double element : y) sum += element * element;
    for (double& element : y) element *= call.l2norm ? 1 / std::sqrt(sum + 1e-6) : 1.0;
    return y;
  };
  for (std::int64_t n = 0; n < call.sequences(); ++n) {
    const std::int64_t begin = offsets.empty() ? n * T : offsets[n];
    const std::int64_t end = offsets.empty() ? (n + 1) * T : offsets[n + 1];
    for (std::int64_t h = 0; h < Hv; ++h) {
      double* S = expected.state.data() + (n * Hv + h) * dk * dv;
      for (std::int64_t i = 0; i < dk * dv; ++i) {
        S[i] = call.initial_state.empty() ? 0.0 : call.initial_state[(n * Hv + h) * dk * dv + i];
      }
      const std::int64_t key_head = call.head_map == HeadMap::interleaved ? h / (Hv / Hk) : h % Hk;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::vector<double> k = normalised(&call.k[(t * Hk + key_head) * dk]);
        const std::vector<double> q = normalised(&call.q[(t * Hk + key_head) * dk]);
        const double alpha = call.g.empty() ? 1.0 : std::exp(static_cast<double>(call.g[t * Hv + h]));
        const double beta = call.beta.empty() ? 1.0 : call.beta[t * Hv + h];
        for (std::int64_t i = 0; i < dk * dv; ++i) S[i] *= alpha;
        for (std::int64_t c = 0; c < dv; ++c) {
          double read = 0;
          for (std::int64_t l = 0; l < dk; ++l) read += S[l * dv + c] * k[l];
          const double u = beta * (call.v[(t * Hv + h) * dv + c] - (delta ? read : 0.0));
          double out = 0;
          for (std::int64_t l = 0; l < dk; ++l) {
            S[l * dv + c] += k[l] * u;
            out += S[l * dv + c] * q[l];
          }
          expected.o[(t * Hv + h) * dv + c] = call.scale * out;
        }
      }
    }
  }
  return expected;
}

/// ||actual - expected|| / ||expected|| in the 2-norm; Inf where a value is not finite. 0 where both are
/// zero.
template <class Actual, class Reference>
double relative_error(const std::vector<Actual>& actual, const std::vector<Reference>& expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    error += difference * difference;
    size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return error == 0 ? 0.0 : std::sqrt(error / size);
}

/// n u32 (ASNA 3.1): what n fp32 roundings in a row may do, n = dot product over dk, two sums over a chunk,
/// and one state update a token. Norm-wise it is generous for ordinary data; the derived bounds are the
/// oracles' business.
inline double rounding_allowance(const Call& call) {
  const std::int64_t roundings = call.shape.dk + 2 * std::min(call.chunk, call.shape.T) + call.shape.T + 8;
  return static_cast<double>(roundings) * 0x1p-24;
}

}  // namespace samestate::testing
