#include "optimized/cpu/operators/selective_scan.h"

#include <bit>
#include <cmath>
#include <string>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

/// Returns the factor of B u; expm1 keeps the digits of a small product.
float input_factor(float delta, float A, bool hold) {
  if (!hold) return delta;
  const float x = delta * A;
  return x == 0.0F ? delta : std::expm1(x) / A;
}

/// Composes the later map after the earlier one into `a` and `b`, which may alias either of them.
void compose(const float* earlier_a, const float* earlier_b, const float* later_a, const float* later_b,
             float* a, float* b, std::int64_t width) {
  for (std::int64_t n = 0; n < width; ++n) {
    const float factor = later_a[n];
    b[n] = factor * earlier_b[n] + later_b[n];
    a[n] = factor * earlier_a[n];
  }
}

/// Runs every channel of every sequence of a call through `scan_channel(scan, sequence, d)`.
template <class ScanChannel>
Outcome scan_channels(const OperatorArguments& call, const Contract& contract, ScanChannel&& scan_channel) {
  const std::int64_t D = call.parameter("D");
  const std::vector<float> rates = rates_of(call.input("A_log"));
  for_each_task(call.batch * D, call.threads, [&] {
    return [&, scan = ChannelScan{}](std::int64_t task) mutable {
      const std::int64_t b = task / D;
      const ScanSequence x{rows_of(call.input("u"), b),
                           rows_of(call.input("dt"), b),
                           rows_of(call.input("z"), b),
                           rows_of(call.input("B"), b),
                           rows_of(call.input("C"), b),
                           call.input("dt_bias").data,
                           rates.data(),
                           call.input("skip").data,
                           rows_of(call.input("h"), b),
                           rows_of(call.output("out"), b),
                           rows_of(call.output("h"), b),
                           call.parameter("hold") != 0,
                           contract.output,
                           contract.state};
      scan_channel(scan, x, task % D);
    };
  });
  return {};
}

}  // namespace

std::vector<float> rates_of(const NamedTensor<const float>& A_log) {
  std::int64_t size = 1;
  for (const std::int64_t extent : A_log.shape) size *= extent;
  std::vector<float> rates(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) rates[static_cast<std::size_t>(i)] = -std::exp(A_log.data[i]);
  return rates;
}

void ChannelScan::begin_channel(const ScanSequence& x, std::int64_t d) {
  const std::int64_t N = x.B.width;
  h_.assign(x.state.row(d), x.state.row(d) + N);
  next_.resize(h_.size());
}

void ChannelScan::end_channel(const ScanSequence& x, std::int64_t d) {
  round_values(h_.data(), x.last_state.row(d), x.B.width, x.state_format);
}

void ChannelScan::form_maps(const ScanSequence& x, std::int64_t d, std::int64_t begin, std::int64_t n) {
  const std::int64_t N = x.B.width;
  const float* A = x.rates + d * N;
  for (std::int64_t i = 0; i < n; ++i) {
    const float delta = layer::softplus(x.dt.row(begin + i)[d] + x.dt_bias[d]);
    const float u = x.u.row(begin + i)[d];
    const float* B = x.B.row(begin + i);
    for (std::int64_t s = 0; s < N; ++s) {
      a_.row(i)[s] = std::exp(delta * A[s]);
      b_.row(i)[s] = input_factor(delta, A[s], x.hold) * B[s] * u;
    }
  }
}

void ChannelScan::read(const ScanSequence& x, std::int64_t d, std::int64_t begin, std::int64_t n) {
  const std::int64_t N = x.B.width;
  for (std::int64_t i = 0; i < n; ++i) {
    const float* C = x.C.row(begin + i);
    float y = 0.0F;
    for (std::int64_t s = 0; s < N; ++s) {
      const float h = a_.row(i)[s] * h_[static_cast<std::size_t>(s)] + b_.row(i)[s];
      next_[static_cast<std::size_t>(s)] = h;
      y += C[s] * h;
    }
    y += x.skip[d] * x.u.row(begin + i)[d];
    const float out = y * layer::silu(x.z.row(begin + i)[d]);
    round_values(&out, x.out.row(begin + i) + d, 1, x.output);
  }
  if (n > 0) h_ = next_;
}

void ChannelScan::by_chunks(const ScanSequence& x, std::int64_t d, std::int64_t chunk) {
  const std::int64_t N = x.B.width;
  begin_channel(x, d);
  for (std::int64_t begin = 0; begin < x.u.count; begin += chunk) {
    const std::int64_t n = std::min(chunk, x.u.count - begin);
    a_.resize(n, N);
    b_.resize(n, N);
    form_maps(x, d, begin, n);
    for (std::int64_t i = 1; i < n; ++i)
      compose(a_.row(i - 1), b_.row(i - 1), a_.row(i), b_.row(i), a_.row(i), b_.row(i), N);
    read(x, d, begin, n);
  }
  end_channel(x, d);
}

void ChannelScan::by_tree(const ScanSequence& x, std::int64_t d) {
  const std::int64_t N = x.B.width;
  const std::int64_t T = x.u.count;
  begin_channel(x, d);
  if (T > 0) {
    a_.resize(T, N);
    b_.resize(T, N);
    form_maps(x, d, 0, T);
    const auto leaves = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(T)));
    tree_a_.resize(leaves, N);
    tree_b_.resize(leaves, N);
    std::copy_n(a_.row(0), a_.size(), tree_a_.row(0));
    std::copy_n(b_.row(0), b_.size(), tree_b_.row(0));
    for (std::int64_t i = T; i < leaves; ++i) {
      std::fill_n(tree_a_.row(i), N, 1.0F);
      std::fill_n(tree_b_.row(i), N, 0.0F);
    }
    for (std::int64_t half = 1; half < leaves; half *= 2) {
      for (std::int64_t right = 2 * half - 1; right < leaves; right += 2 * half) {
        const std::int64_t left = right - half;
        compose(tree_a_.row(left), tree_b_.row(left), tree_a_.row(right), tree_b_.row(right),
                tree_a_.row(right), tree_b_.row(right), N);
      }
    }
    // On the way down a node holds the product of all tokens before its own: unchanged for the left child,
    // times the left child for the right.
    std::fill_n(tree_a_.row(leaves - 1), N, 1.0F);
    std::fill_n(tree_b_.row(leaves - 1), N, 0.0F);
    for (std::int64_t half = leaves / 2; half >= 1; half /= 2) {
      for (std::int64_t right = 2 * half - 1; right < leaves; right += 2 * half) {
        const std::int64_t left = right - half;
        std::swap_ranges(tree_a_.row(left), tree_a_.row(left) + N, tree_a_.row(right));
        std::swap_ranges(tree_b_.row(left), tree_b_.row(left) + N, tree_b_.row(right));
        compose(tree_a_.row(left), tree_b_.row(left), tree_a_.row(right), tree_b_.row(right),
                tree_a_.row(right), tree_b_.row(right), N);
      }
    }
    for (std::int64_t t = 0; t < T; ++t)
      compose(tree_a_.row(t), tree_b_.row(t), a_.row(t), b_.row(t), a_.row(t), b_.row(t), N);
    read(x, d, 0, T);
  }
  end_channel(x, d);
}

Outcome selective_scan_chunks(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  return scan_channels(call, contract, [&](ChannelScan& scan, const ScanSequence& x, std::int64_t d) {
    scan.by_chunks(x, d, call.chunk);
  });
}

Outcome selective_scan_tree(const OperatorArguments& call, const Contract& contract) {
  return scan_channels(call, contract,
                       [](ChannelScan& scan, const ScanSequence& x, std::int64_t d) { scan.by_tree(x, d); });
}

}  // namespace samestate::cpu
