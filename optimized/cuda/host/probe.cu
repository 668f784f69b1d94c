#include <cstdint>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "optimized/cuda/host/probe.h"

#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/units/intrinsics.cuh"

namespace samestate {
namespace cuda {
namespace {

/// One problem per warp; fragments as in intrinsics.cuh, with inputs representable in the unit's format.
__global__ void multiply_bf16_kernel(const float* A, const float* B, const float* C, float* D) {
  const int row = lane_index() / 4;
  const int pair = 2 * (lane_index() % 4);
  A += static_cast<std::int64_t>(blockIdx.x) * 16 * 16;
  B += static_cast<std::int64_t>(blockIdx.x) * 16 * 8;
  const std::int64_t out = static_cast<std::int64_t>(blockIdx.x) * 16 * 8;
  const auto packed = [](float low, float high) {
    return static_cast<std::uint32_t>(narrow<Bf16>(low).bits) |
           static_cast<std::uint32_t>(narrow<Bf16>(high).bits) << 16;
  };
  std::uint32_t a[4];
  std::uint32_t b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {
    const float* from = A + (row + 8 * (i % 2)) * 16 + pair + 8 * (i / 2);
    a[i] = packed(from[0], from[1]);
    c[i] = C[out + (row + 8 * (i / 2)) * 8 + pair + i % 2];
  }
  for (int i = 0; i < 2; ++i) b[i] = packed(B[(pair + 8 * i) * 8 + row], B[(pair + 8 * i + 1) * 8 + row]);
  multiply_bf16(c, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) D[out + (row + 8 * (i / 2)) * 8 + pair + i % 2] = c[i];
}

/// m16n8k8: a[i] is element (l / 4 + 8 (i % 2), l % 4 + 4 (i / 2)), b[i] is element (l % 4 + 4 i, l / 4).
__global__ void multiply_tf32_kernel(const float* A, const float* B, const float* C, float* D) {
  const int row = lane_index() / 4;
  const int depth = lane_index() % 4;
  A += static_cast<std::int64_t>(blockIdx.x) * 16 * 8;
  B += static_cast<std::int64_t>(blockIdx.x) * 8 * 8;
  const std::int64_t out = static_cast<std::int64_t>(blockIdx.x) * 16 * 8;
  std::uint32_t a[4];
  std::uint32_t b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = __float_as_uint(A[(row + 8 * (i % 2)) * 8 + depth + 4 * (i / 2)]);
    c[i] = C[out + (row + 8 * (i / 2)) * 8 + 2 * depth + i % 2];
  }
  for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(B[(depth + 4 * i) * 8 + row]);
  multiply_tf32(c, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) D[out + (row + 8 * (i / 2)) * 8 + 2 * depth + i % 2] = c[i];
}

template <class Kernel>
Multiply on_device(Kernel kernel) {
  return [kernel](const std::vector<float>& A, const std::vector<float>& B, const std::vector<float>& C) {
    const DeviceBuffer<float> a(A);
    const DeviceBuffer<float> b(B);
    const DeviceBuffer<float> c(C);
    const DeviceBuffer<float> d(C.size());
    kernel<<<static_cast<unsigned>(C.size() / 128), 32>>>(a.data(), b.data(), c.data(), d.data());
    check_launch("the probe of the matrix units");
    return d.download();
  };
}

/// Draws numbers with a sign, `bits` significant bits and an exponent from [-exponents / 2, exponents / 2).
std::function<float(int)> drawn(int bits) {
  return [bits, random = std::mt19937(1)](int exponents) mutable {
    const auto mantissa = static_cast<float>((1U << (bits - 1)) + random() % (1U << (bits - 1)));
    const int exponent = static_cast<int>(random() % static_cast<unsigned>(exponents)) - exponents / 2;
    return std::ldexp(random() % 2 ? mantissa : -mantissa, exponent - bits + 1);
  };
}

__global__ void exponential_kernel(const float* x, std::int64_t count, float* ex2, float* exact, float* fast,
                                   float* same) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  ex2[i] = exponential2(x[i]);
  exact[i] = exponential(x[i]);
  fast[i] = decay<Bf16>(x[i]);
  same[i] = fused(x[i], 1.0F, 0.0F);
}

struct Worst {
  double relative = 0.0, at = 0.0, ulps = 0.0;

  void see(double x, float y, double exact) {
    const double error = std::fabs(static_cast<double>(y) - exact);
    ulps = std::fmax(ulps, error / std::ldexp(1.0, std::ilogb(exact) - 23));
    if (error / exact * 0x1p24 <= relative) return;
    relative = error / exact * 0x1p24;
    at = x;
  }
};

ExponentialProbe probe_exponentials() {
  // Every 101st fp32 number of [-126, -2^-24], followed by the ends.
  std::vector<float> x;
  const std::uint32_t last = 0xc2fc0000U;
  for (std::uint32_t bits = 0xb3800000U; bits < last; bits += 101) {
    float value = 0.0F;
    std::memcpy(&value, &bits, sizeof value);
    x.push_back(value);
  }
  x.insert(x.end(), {-126.0F, 0.0F, -127.0F, -std::ldexp(1.0F, -127)});
  const DeviceBuffer<float> inputs(x);
  const DeviceBuffer<float> ex2(x.size());
  const DeviceBuffer<float> exact(x.size());
  const DeviceBuffer<float> fast(x.size());
  const DeviceBuffer<float> same(x.size());
  exponential_kernel<<<static_cast<unsigned>((x.size() + 255) / 256), 256>>>(
      inputs.data(), static_cast<std::int64_t>(x.size()), ex2.data(), exact.data(), fast.data(), same.data());
  check_launch("the probe of the exponentials");
  const std::vector<float> ex2_y = ex2.download();
  const std::vector<float> exact_y = exact.download();
  const std::vector<float> fast_y = fast.download();

  ExponentialProbe found;
  Worst ex2_worst;
  Worst exact_worst;
  Worst fast_worst;
  for (std::size_t i = 0; i + 2 < x.size(); ++i) {
    const auto at = static_cast<double>(x[i]);
    ex2_worst.see(at, ex2_y[i], std::exp2(at));
    if (at < -87.0) continue;
    exact_worst.see(at, exact_y[i], std::exp(at));
    fast_worst.see(at, fast_y[i], std::exp(at));
    const double relative = std::fabs(static_cast<double>(fast_y[i]) - std::exp(at)) / std::exp(at) * 0x1p24;
    found.fast_share = std::fmax(found.fast_share, relative / (3.0 - 1.5 * at));
  }
  found.ex2 = ex2_worst.relative, found.ex2_at = ex2_worst.at, found.ex2_ulps = ex2_worst.ulps;
  found.expf = exact_worst.relative, found.expf_at = exact_worst.at, found.expf_ulps = exact_worst.ulps;
  found.fast = fast_worst.relative, found.fast_at = fast_worst.at, found.fast_ulps = fast_worst.ulps;
  found.ex2_flushes = ex2_y[x.size() - 2] == 0.0F;
  found.fma_flushes = same.download().back() == 0.0F;
  return found;
}

std::string json(const SumProbe& p) {
  std::ostringstream out;
  out << std::boolalpha << "{\"instruction\": \"" << p.instruction << "\", \"terms\": " << p.terms
      << ", \"exact_block\": " << p.exact_block << ", \"accumulator_in_block\": " << p.accumulator_in_block
      << ", \"rounding\": \"" << p.rounding << "\", \"extra_bits\": " << p.extra_bits
      << ", \"worst_error\": " << p.worst_error << ", \"mean_error\": " << p.mean_error
      << ", \"subnormal_inputs\": " << p.subnormal_inputs
      << ", \"subnormal_products\": " << p.subnormal_products
      << ", \"subnormal_accumulators\": " << p.subnormal_accumulators << "}";
  return out.str();
}

std::string json(const ExponentialProbe& p) {
  std::ostringstream out;
  out << std::boolalpha << "{\"ex2\": " << p.ex2 << ", \"ex2_at\": " << p.ex2_at
      << ", \"ex2_ulps\": " << p.ex2_ulps << ", \"expf\": " << p.expf << ", \"expf_at\": " << p.expf_at
      << ", \"expf_ulps\": " << p.expf_ulps << ", \"fast\": " << p.fast << ", \"fast_at\": " << p.fast_at
      << ", \"fast_ulps\": " << p.fast_ulps << ", \"fast_share\": " << p.fast_share
      << ", \"ex2_flushes\": " << p.ex2_flushes << ", \"fma_flushes\": " << p.fma_flushes << "}";
  return out.str();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace
}  // namespace cuda

std::string probe_json() {
  const cuda::Device& device = cuda::device();
  if (!device.info) return "{\"no_device\": " + cuda::quoted(device.reason) + "}";
  constexpr int kProblems = 4096;
  const cuda::SumProbe bf16 = cuda::probe_sums(
      "mma.m16n8k16.bf16", 16, cuda::on_device(cuda::multiply_bf16_kernel), cuda::drawn(8), kProblems);
  const cuda::SumProbe tf32 = cuda::probe_sums(
      "mma.m16n8k8.tf32", 8, cuda::on_device(cuda::multiply_tf32_kernel), cuda::drawn(11), kProblems);
  return "{\"device\": " + cuda::quoted(device.info->name) +
         ", \"driver\": " + cuda::quoted(device.info->driver) +
         ", \"runtime\": " + cuda::quoted(device.info->runtime) + ", \"sums\": [" + cuda::json(bf16) + ", " +
         cuda::json(tf32) + "], \"exponentials\": " + cuda::json(cuda::probe_exponentials()) + "}";
}

}  // namespace samestate
