// Kernels that take a KernelCall, of both kinds of systems, for tests/cli/plugin_interface_test.sh: a right one and one with a fault of
// each, and rows of named tensors in the older struct, one of which takes no packed batches.
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "optimized/plugin.h"

namespace {

using samestate::CallTensor;
using samestate::Contract;
using samestate::KernelCall;
using samestate::Outcome;
using samestate::TensorRole;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// A call says whose it is, what each tensor is for, and that an output lies on an input where it does.
void require_names(const KernelCall& call, std::string_view system, std::string_view form) {
  require(call.system == system && call.form == form, "the call is of another row");
  for (const CallTensor& x : call.inputs) {
    const TensorRole role = x.axis == samestate::Axis::whole ? TensorRole::weight : TensorRole::input;
    require(x.role == role, "input " + std::string(x.name) + " has another role");
  }
  for (const CallTensor& y : call.outputs) {
    bool shared = false;
    for (const CallTensor& x : call.inputs) shared = shared || (x.data == y.data && y.data != nullptr);
    require(y.role == (shared ? TensorRole::in_place : TensorRole::output),
            "output " + std::string(y.name) + " has another role");
  }
}

/// The tokens of sequence n, and its row of the batch.
struct Tokens {
  std::int64_t row, begin, end;
};

Tokens tokens_of(const KernelCall& call, std::int64_t n) {
  if (!call.cu_seqlens.present()) return {n, 0, call.tokens};
  return {0, call.cu_seqlens(n), call.cu_seqlens(n + 1)};
}

std::int64_t sequences_of(const KernelCall& call) {
  return call.cu_seqlens.present() ? call.cu_seqlens.shape[0] - 1 : call.batch;
}

/// y_t = act(b + sum_j w_j x_{t - W + 1 + j}). `across`: the window of a packed sequence reaches into the one before it.
Outcome convolve(const KernelCall& call, bool across) {
  require_names(call, "short_convolution", "scatter");
  const std::int64_t W = call.parameter("W"), C = call.parameter("C");
  const auto x = call.view<const float, 3>("x"), past = call.view<const float, 3>("state");
  const auto kernel = call.view<const float, 2>("kernel");
  const auto bias = call.view<const float, 1>("bias");
  const auto y = call.view<float, 3>("y"), state = call.view<float, 3>("state");
  for (std::int64_t n = 0; n < sequences_of(call); ++n) {
    const Tokens of = tokens_of(call, n);
    const auto input = [&](std::int64_t t, std::int64_t c) {
      return t >= (across ? 0 : of.begin) ? x(of.row, t, c) : past(n, W - 1 + t - of.begin, c);
    };
    for (std::int64_t t = of.begin; t < of.end; ++t) {
      for (std::int64_t c = 0; c < C; ++c) {
        float sum = bias.present() ? bias(c) : 0.0F;
        for (std::int64_t j = 0; j < W; ++j) sum += kernel(c, W - 1 - j) * input(t - j, c);
        y(of.row, t, c) = call.parameter("activation") != 0 ? sum / (1.0F + std::exp(-sum)) : sum;
      }
    }
    std::vector<float> carried;  // the state may be the memory that is read
    for (std::int64_t i = 0; i < W - 1; ++i) {
      for (std::int64_t c = 0; c < C; ++c) carried.push_back(input(of.end - (W - 1) + i, c));
    }
    for (std::int64_t i = 0; i < (W - 1) * C; ++i)
      state(n, i / C, i % C) = carried[static_cast<std::size_t>(i)];
  }
  return {};
}

/// S <- e^g S + k v^T, o = scale S^T q, token by token. `unscaled`: the setting is not read.
Outcome retain(const KernelCall& call, bool unscaled) {
  require_names(call, "retention", "recurrent");
  const auto q = call.view<const float, 4>("q"), k = call.view<const float, 4>("k"),
             v = call.view<const float, 4>("v"), initial = call.view<const float, 4>("initial_state");
  const auto g = call.view<const float, 3>("g");
  const auto o = call.view<float, 4>("o"), final_state = call.view<float, 4>("final_state");
  const std::int64_t Hk = call.parameter("Hk"), Hv = call.parameter("Hv");
  const auto dk = static_cast<std::size_t>(call.parameter("dk")),
             dv = static_cast<std::size_t>(call.parameter("dv"));
  const auto row = [&](const samestate::View<const float, 4>& x, const Tokens& of, std::int64_t t,
                       std::int64_t h) {
    std::vector<float> values(dk);
    float sum = 0.0F;
    for (std::size_t i = 0; i < dk; ++i) values[i] = x(of.row, t, h, i), sum += values[i] * values[i];
    for (float& value : values) value *= call.l2norm() ? 1.0F / std::sqrt(sum + 1e-6F) : 1.0F;
    return values;
  };
  for (std::int64_t n = 0; n < sequences_of(call); ++n) {
    const Tokens of = tokens_of(call, n);
    for (std::int64_t h = 0; h < Hv; ++h) {
      const std::int64_t key = call.head_map() == samestate::HeadMap::tiled ? h % Hk : h / (Hv / Hk);
      std::vector<float> S(dk * dv, 0.0F);
      for (std::size_t i = 0; i < S.size() && initial.present(); ++i) S[i] = initial(n, h, i / dv, i % dv);
      for (std::int64_t t = of.begin; t < of.end; ++t) {
        const std::vector<float> keys = row(k, of, t, key), queries = row(q, of, t, key);
        const float decay = std::exp(g(of.row, t, h));
        for (std::size_t j = 0; j < dv; ++j) {
          float sum = 0.0F;
          for (std::size_t i = 0; i < dk; ++i) {
            S[i * dv + j] = decay * S[i * dv + j] + keys[i] * v(of.row, t, h, j);
            sum += queries[i] * S[i * dv + j];
          }
          o(of.row, t, h, j) = unscaled ? sum : call.scale() * sum;
        }
      }
      for (std::size_t i = 0; i < S.size() && final_state.present(); ++i)
        final_state(n, h, i / dv, i % dv) = S[i];
    }
  }
  return {};
}

float of_bits(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

/// To the nearest bf16, ties to even.
std::uint16_t to_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

/// Computes y = x (mean x^2 + 1e-6)^-1/2 weight on tensors of bf16; the weight is fp32 whatever the contract.
/// With `apart`, an element outside of y is written too.
Outcome normalise(const KernelCall& call, bool apart) {
  require(call.input("x")->dtype == samestate::Dtype::bf16, "x is no bf16");
  const auto x = call.view<const std::uint16_t, 4>("x");
  const auto weight = call.view<const float, 1>("weight");
  const auto y = call.view<std::uint16_t, 4>("y");
  const std::int64_t D = call.parameter("D"), H = call.parameter("H");
  for (std::int64_t row = 0; row < call.batch * call.tokens * H; ++row) {
    const std::int64_t b = row / H / call.tokens, t = row / H % call.tokens, h = row % H;
    float sum = 0.0F;
    for (std::int64_t i = 0; i < D; ++i) sum += of_bits(x(b, t, h, i)) * of_bits(x(b, t, h, i));
    const float factor = 1.0F / std::sqrt(sum / static_cast<float>(D) + 1e-6F);
    for (std::int64_t i = 0; i < D; ++i) y(b, t, h, i) = to_bits(of_bits(x(b, t, h, i)) * factor * weight(i));
  }
  if (apart && y.present()) y.data[-1] = 0;
  return {};
}

/// The same function, which takes for fp32 what its row asks for in bf16.
Outcome normalise_fp32(const KernelCall& call) {
  (void)call.view<const float, 4>("x");
  return {};
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }
int samestate_plugin_call_abi() { return samestate::plugin_call_abi; }

void samestate_plugin_call_kernels(std::vector<samestate::CallKernel>* rows) {
  const auto add = [&](const std::string& name, const char* system, const char* form, auto run) {
    rows->push_back({name + "." + system + "." + form, system, form, "cpu", {"fp32"}, run});
  };
  add("calls", "short_convolution", "scatter",
      [](const KernelCall& call, const Contract&) { return convolve(call, false); });
  add("across", "short_convolution", "scatter",
      [](const KernelCall& call, const Contract&) { return convolve(call, true); });
  add("calls", "retention", "recurrent",
      [](const KernelCall& call, const Contract&) { return retain(call, false); });
  add("unscaled", "retention", "recurrent",
      [](const KernelCall& call, const Contract&) { return retain(call, true); });
  const auto add_bf16 = [&](const std::string& name, auto run) {
    rows->push_back({name + ".rms_norm.fused", "rms_norm", "fused", "cpu", {"bf16"}, run});
    rows->back().contract_dtypes = true;
  };
  add_bf16("bf16", [](const KernelCall& call, const Contract&) { return normalise(call, false); });
  add_bf16("beside", [](const KernelCall& call, const Contract&) { return normalise(call, true); });
  add_bf16("mistaken", [](const KernelCall& call, const Contract&) { return normalise_fp32(call); });
}

void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  for (samestate::OperatorKernel row : samestate::operator_kernels()) {
    if (row.name != "cpu.short_convolution.scatter") continue;
    row.name = "struct.short_convolution.scatter";
    rows->push_back(row);
    row.name = "dense.short_convolution.scatter";
    row.packed = false;
    rows->push_back(row);
  }
}
