#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/cpu/backward/kernels.h"
#include "tests/optimized/call.h"

/// A call of a backward kernel with memory of its own, and its gradients in double: central differences of the loss
/// <d.o, o> + <d.final_state, final state>, where o and the state come from plain loops over the equations.
namespace samestate::testing {

using Values = std::map<std::string, std::vector<float>, std::less<>>;

/// Outputs begin with this value, which is no gradient of these data.
inline constexpr float kUnwritten = 12345.0F;

struct BackwardCall {
  std::string system;                     ///< of the forward pass
  Call forward;                           ///< inputs and settings; an empty tensor is absent
  std::vector<float> d_o, d_final_state;  ///< absent if empty
  Values gradients = {};                  ///< by the names of their tensors: q, k, v, g, beta, initial_state

  [[nodiscard]] std::size_t columns(std::string_view name) const {
    const Shape& s = forward.shape;
    if (name == "q" || name == "k") return static_cast<std::size_t>(s.Hk * s.dk);
    if (name == "v") return static_cast<std::size_t>(s.Hv * s.dv);
    return static_cast<std::size_t>(s.Hv);
  }

  /// The inputs that have gradients.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out = {"q", "k", "v"};
    if (has_decay(system)) out.emplace_back("g");
    if (has_delta(system)) out.emplace_back("beta");
    out.emplace_back("initial_state");
    return out;
  }

  /// True if a sequence owns the token, which counts over the whole batch.
  [[nodiscard]] bool owned(std::int64_t t) const {
    const auto& offsets = forward.shape.offsets;
    return offsets.empty() || (t >= offsets.front() && t < offsets.back());
  }

  /// The call, with all gradients wanted and unwritten. The views point into this object.
  [[nodiscard]] KernelCall call() {
    const auto [B, T, Hk, Hv, dk, dv, offsets] = forward.shape;
    const std::int64_t N = forward.sequences();
    KernelCall out;
    const auto tensor = [](std::string_view name, std::vector<float>& x, std::vector<std::int64_t> shape,
                           TensorRole role) {
      CallTensor t{.name = name, .role = role, .shape = std::move(shape)};
      t.stride.assign(t.shape.size(), 1);
      for (std::size_t d = t.shape.size(); d-- > 1;) t.stride[d - 1] = t.stride[d] * t.shape[d];
      x.reserve(1);  // a tensor of no elements is there
      t.data = x.data();
      return t;
    };
    const auto input = [&](std::string_view name, std::vector<float>& x, std::vector<std::int64_t> shape) {
      if (!x.empty()) out.inputs.push_back(tensor(name, x, std::move(shape), TensorRole::input));
    };
    const std::vector<std::int64_t> key = {B, T, Hk, dk}, value = {B, T, Hv, dv}, gate = {B, T, Hv, 1},
                                    state = {N, Hv, dk, dv};
    // Tensors of q's and v's shape have to be there even if they hold nothing, since they say the sizes.
    out.inputs = {tensor("q", forward.q, key, TensorRole::input),
                  tensor("k", forward.k, key, TensorRole::input),
                  tensor("v", forward.v, value, TensorRole::input)};
    input("g", forward.g, gate), input("beta", forward.beta, gate);
    input("initial_state", forward.initial_state, state);
    input("d.o", d_o, value), input("d.final_state", d_final_state, state);
    for (const std::string& name : names()) {
      const auto& shape = name == "initial_state"      ? state
                          : name == "v"                ? value
                          : name == "q" || name == "k" ? key
                                                       : gate;
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      gradients[name].assign(static_cast<std::size_t>(count), kUnwritten);
      static const std::map<std::string, std::string, std::less<>> kOutputs = {
          {"q", "d.q"}, {"k", "d.k"},       {"v", "d.v"},
          {"g", "d.g"}, {"beta", "d.beta"}, {"initial_state", "d.initial_state"}};
      out.outputs.push_back(tensor(kOutputs.find(name)->second, gradients[name], shape, TensorRole::output));
    }
    if (!forward.shape.offsets.empty())
      out.cu_seqlens = row_major<const std::int64_t, 1>(forward.shape.offsets.data(), {N + 1});
    out.batch = B;
    out.tokens = T;
    out.threads = forward.threads;
    out.set("scale", static_cast<double>(forward.scale));
    out.set("chunk", static_cast<double>(forward.chunk));
    out.set("tiled", forward.head_map == HeadMap::tiled ? 1.0 : 0.0);
    out.set("l2norm", forward.l2norm ? 1.0 : 0.0);
    out.set("backward", 1.0);
    return out;
  }
};

/// Data as make_call draws them, with cotangents in [-1, 1]. Those of rows that no sequence owns are NaN.
inline BackwardCall make_backward_call(std::string_view system, const Shape& shape, std::int64_t chunk,
                                       std::uint32_t seed = 1) {
  BackwardCall out{std::string(system), make_call(system, shape, chunk, false, seed), {}, {}};
  std::mt19937 bits(seed + 1000);
  const auto fill = [&](std::vector<float>& x, std::size_t count) {
    x.resize(count);
    for (float& e : x) e = static_cast<float>(bits() >> 8U) * 0x1p-23F - 1.0F;
  };
  fill(out.d_o, static_cast<std::size_t>(shape.B * shape.T) * out.columns("v"));
  fill(out.d_final_state, out.forward.initial_state.size());
  for (std::size_t i = 0; i < out.d_o.size(); ++i) {
    if (!out.owned(static_cast<std::int64_t>(i / out.columns("v"))))
      out.d_o[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return out;
}

inline const CallKernel& backward_kernel(std::string_view system, std::string_view form) {
  static const std::vector<CallKernel> rows = cpu::backward_kernels();
  const std::string name = "cpu." + std::string(system) + ".backward." + std::string(form);
  for (const CallKernel& row : rows) {
    if (row.name == name) return row;
  }
  throw std::out_of_range(name);
}

/// The inputs in double, by name; the initial state is zero where it is absent.
using Inputs = std::map<std::string, std::vector<double>, std::less<>>;

inline Inputs inputs_of(const BackwardCall& x) {
  const auto wide = [](const std::vector<float>& from) {
    return std::vector<double>(from.begin(), from.end());
  };
  const Call& f = x.forward;
  Inputs out{{"q", wide(f.q)}, {"k", wide(f.k)}, {"v", wide(f.v)}, {"g", wide(f.g)}, {"beta", wide(f.beta)}};
  const Shape& s = f.shape;
  out["initial_state"] =
      f.initial_state.empty()
          ? std::vector<double>(static_cast<std::size_t>(f.sequences() * s.Hv * s.dk * s.dv))
          : wide(f.initial_state);
  return out;
}

/// The part of the loss that is of sequence n and value head h.
inline double loss_of(const BackwardCall& x, const Inputs& in, std::int64_t n, std::int64_t h) {
  const auto [B, T, Hk, Hv, dk, dv, offsets] = x.forward.shape;
  const bool delta = has_delta(x.system);
  const std::vector<double>&q = in.at("q"), &k = in.at("k"), &v = in.at("v"), &g = in.at("g"),
        &beta = in.at("beta");
  const std::int64_t begin = offsets.empty() ? n * T : offsets[static_cast<std::size_t>(n)];
  const std::int64_t end = offsets.empty() ? (n + 1) * T : offsets[static_cast<std::size_t>(n) + 1];
  const std::int64_t key_head = x.forward.head_map == HeadMap::interleaved ? h / (Hv / Hk) : h % Hk;
  const auto factor = [&, dk = dk](const std::vector<double>& of, std::int64_t row) {
    double sum = 0;
    for (std::int64_t l = 0; l < dk; ++l) sum += of[row * dk + l] * of[row * dk + l];
    return x.forward.l2norm ? 1 / std::sqrt(sum + 1e-6) : 1.0;
  };
  const auto first = in.at("initial_state").begin() + (n * Hv + h) * dk * dv;
  std::vector<double> S(first, first + dk * dv);
  double loss = 0;
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int64_t row = t * Hk + key_head, at = t * Hv + h;
    const double rq = factor(q, row), rk = factor(k, row);
    const double alpha = g.empty() ? 1.0 : std::exp(g[at]), strength = beta.empty() ? 1.0 : beta[at];
    for (double& s : S) s *= alpha;
    for (std::int64_t c = 0; c < dv; ++c) {
      double read = 0;
      for (std::int64_t l = 0; l < dk; ++l) read += S[l * dv + c] * rk * k[row * dk + l];
      const double u = delta ? strength * (v[at * dv + c] - read) : v[at * dv + c];
      double out = 0;
      for (std::int64_t l = 0; l < dk; ++l) {
        S[l * dv + c] += rk * k[row * dk + l] * u;
        out += S[l * dv + c] * rq * q[row * dk + l];
      }
      if (!x.d_o.empty())
        loss += static_cast<double>(x.forward.scale) * out * static_cast<double>(x.d_o[at * dv + c]);
    }
  }
  if (!x.d_final_state.empty()) {
    for (std::int64_t i = 0; i < dk * dv; ++i)
      loss += S[i] * static_cast<double>(x.d_final_state[(n * Hv + h) * dk * dv + i]);
  }
  return loss;
}

/// The gradients by central differences; rows that no sequence owns have kUnwritten.
inline Inputs differences_of(const BackwardCall& x) {
  const std::int64_t N = x.forward.sequences(), Hv = x.forward.shape.Hv, Hk = x.forward.shape.Hk,
                     T = x.forward.shape.T;
  const auto& offsets = x.forward.shape.offsets;
  const Inputs at = inputs_of(x);
  Inputs moved = at, out;
  for (const std::string& name : x.names()) {
    std::vector<double>& gradient = out[name];
    for (std::size_t i = 0; i < at.at(name).size(); ++i) {
      const bool state = name == "initial_state";
      const auto row = static_cast<std::int64_t>(
          i / (state ? at.at(name).size() / static_cast<std::size_t>(N) : x.columns(name)));
      if (!state && !x.owned(row)) {
        gradient.push_back(static_cast<double>(kUnwritten));
        continue;
      }
      // Only sequences that own the element see it, and only heads that read it.
      const auto sees = [&](std::int64_t n, std::int64_t h) {
        const std::size_t columns =
            state ? at.at(name).size() / static_cast<std::size_t>(N) : x.columns(name);
        const auto head = static_cast<std::int64_t>(
            i % columns / (columns / static_cast<std::size_t>(name == "q" || name == "k" ? Hk : Hv)));
        const std::int64_t key_head = x.forward.head_map == HeadMap::interleaved ? h / (Hv / Hk) : h % Hk;
        if ((name == "q" || name == "k" ? key_head : h) != head) return false;
        if (state) return n == row;
        if (offsets.empty()) return n == row / T;
        return row >= offsets[static_cast<std::size_t>(n)] && row < offsets[static_cast<std::size_t>(n) + 1];
      };
      constexpr double kStep = 0x1p-16;
      const auto loss = [&](double step) {
        moved[name][i] = at.at(name)[i] + step;
        double sum = 0;
        for (std::int64_t n = 0; n < N; ++n) {
          for (std::int64_t h = 0; h < Hv; ++h) {
            if (sees(n, h)) sum += loss_of(x, moved, n, h);
          }
        }
        return sum;
      };
      gradient.push_back((loss(kStep) - loss(-kStep)) / (2 * kStep));
      moved[name][i] = at.at(name)[i];
    }
  }
  return out;
}

const inline std::vector<std::string> kSystems = {"gated_delta_rule", "delta_rule", "retention",
                                                  "linear_attention"};
const inline std::vector<std::string> kForms = {"recurrent", "chunked"};

/// Chunks of 4 tokens leave a tail.
const inline Shape kDense{.B = 2, .T = 11, .Hk = 2, .Hv = 4, .dk = 5, .dv = 3};

/// fp32 of such sizes is within this distance of double, in the 2-norm; a lost term is at 1e-3 or more.
inline constexpr double kNear = 1e-6;

inline void for_each_form(
    const std::function<void(const std::string& system, const std::string& form)>& body) {
  for (const std::string& system : kSystems) {
    for (const std::string& form : kForms) body(system, form);
  }
}

/// The gradients of a copy of the call.
inline Values run_backward(BackwardCall x, std::string_view form, const Contract& contract = {}) {
  const Outcome outcome = backward_kernel(x.system, form).run(x.call(), contract);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return std::move(x.gradients);
}

template <class Expected>
void expect_near(const Values& got, const Expected& expected, double limit, const std::string& where) {
  for (const auto& [name, values] : expected)
    EXPECT_LE(relative_error(got.at(name), values), limit) << where << ": d." << name;
}

/// Bit for bit, also in the sign of a zero.
inline void expect_same(const Values& got, const Values& expected, const std::string& where) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (const auto& [name, values] : expected)
    EXPECT_TRUE(std::ranges::equal(got.at(name), values, {}, bits, bits)) << where << ": d." << name;
}

}  // namespace samestate::testing
