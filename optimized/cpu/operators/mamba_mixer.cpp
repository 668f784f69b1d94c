#include "optimized/cpu/operators/mamba_mixer.h"

#include <string>
#include <utility>

#include "optimized/cpu/operators/mixer_stages.h"
#include "optimized/cpu/operators/selective_scan.h"
#include "optimized/cpu/operators/state_space_duality.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

using mixer::for_each_tile;
using mixer::part;

/// EQUATIONS 5.10: the epsilon of the norms in public checkpoints.
constexpr float kNormEpsilon = 1e-5F;

void require_chunk(const OperatorArguments& call) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
}

/// Copies a block of activations [B T, width] to a tap if the call asks for it.
void hand_out(const OperatorArguments& call, std::string_view tap, const Block& x) {
  for (std::int64_t b = 0; b < call.batch; ++b) {
    for (std::int64_t t = 0; t < call.tokens; ++t)
      layer::hand_out(call, tap, b, t, x.row(b * call.tokens + t), x.columns);
  }
}

/// Computes in_proj of every token: [B T, width of the projection].
Block projected_input(const OperatorArguments& call, const MatrixUnit& unit, Format format) {
  const Block weight = layer::transposed(call.input("in_proj"));
  Block projected;
  projected.resize(call.batch * call.tokens, weight.columns);
  for_each_tile(call, [&](std::int64_t b, std::int64_t begin, std::int64_t n) {
    mixer::project(unit, rows_of(call.input("hidden"), b).rows(begin, n), weight, format, projected,
                   b * call.tokens + begin);
  });
  hand_out(call, "projected", projected);
  return projected;
}

/// Computes out_proj of every token from [B T, Di].
void project_output(const OperatorArguments& call, const MatrixUnit& unit, const Block& x, Format format) {
  const Block weight = layer::transposed(call.input("out_proj"));
  Block out;
  out.resize(call.batch * call.tokens, weight.columns);
  for_each_tile(call, [&](std::int64_t b, std::int64_t begin, std::int64_t n) {
    const std::int64_t row = b * call.tokens + begin;
    mixer::project(unit, part(x, row, n, 0, x.columns), weight, format, out, row);
    const TensorRows<float> to = rows_of(call.output("out"), b).rows(begin, n);
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(out.row(row + i), to.width, to.row(i));
  });
}

/// Returns the convolution of one sequence over the columns [first, first + C) of `projected`.
mixer::Convolution convolution_of(const OperatorArguments& call, const Block& taps, const Block& projected,
                                  std::int64_t first, std::int64_t b) {
  return {taps, call.input("conv1d_bias").data, rows_of(call.input("convolution"), b),
          part(projected, b * call.tokens, call.tokens, first, taps.columns)};
}

void store_convolution_states(const OperatorArguments& call, const Block& taps, const Block& projected,
                              std::int64_t first, Format format) {
  for (std::int64_t b = 0; b < call.batch; ++b) {
    convolution_of(call, taps, projected, first, b)
        .store_state(rows_of(call.output("convolution"), b), format);
  }
}

}  // namespace

Outcome mamba_mixer_chunks(const OperatorArguments& call, const Contract& contract) {
  require_chunk(call);
  const std::int64_t T = call.tokens;
  const std::int64_t Di = call.parameter("Di");
  const std::int64_t N = call.parameter("N");
  const std::int64_t R = call.parameter("R");
  const Format kept = layer::kept(contract);
  const MatrixUnit unit = MatrixUnit::of(contract);
  const Block taps = layer::transposed(call.input("conv1d"));
  const Block x_proj = layer::transposed(call.input("x_proj"));
  const Block dt_proj = layer::transposed(call.input("dt_proj"));
  const Block projected = projected_input(call, unit, kept);  // x, z

  Block u, selected, dt, gated;  // selected: dt of low rank, B, C
  for (Block* x : {&u, &dt, &gated}) x->resize(call.batch * T, Di);
  selected.resize(call.batch * T, R + 2 * N);
  for_each_tile(call, [&](std::int64_t b, std::int64_t begin, std::int64_t n) {
    const std::int64_t row = b * T + begin;
    const mixer::Convolution convolution = convolution_of(call, taps, projected, 0, b);
    for (std::int64_t i = 0; i < n; ++i) convolution.token(begin + i, kept, u.row(row + i));
    mixer::project(unit, part(std::as_const(u), row, n, 0, Di), x_proj, kept, selected, row);
    mixer::project(unit, part(std::as_const(selected), row, n, 0, R), dt_proj, kept, dt, row);
  });
  store_convolution_states(call, taps, projected, 0, contract.state);
  hand_out(call, "u", u);
  hand_out(call, "selected", selected);
  hand_out(call, "dt", dt);

  const std::vector<float> rates = rates_of(call.input("A_log"));
  for_each_task(call.batch * Di, call.threads, [&] {
    return [&, scan = ChannelScan{}](std::int64_t task) mutable {
      const std::int64_t b = task / Di;
      const ScanSequence x{part(std::as_const(u), b * T, T, 0, Di),
                           part(std::as_const(dt), b * T, T, 0, Di),
                           part(projected, b * T, T, Di, Di),
                           part(std::as_const(selected), b * T, T, R, N),
                           part(std::as_const(selected), b * T, T, R + N, N),
                           call.input("dt_bias").data,
                           rates.data(),
                           call.input("skip").data,
                           rows_of(call.input("h"), b),
                           part(gated, b * T, T, 0, Di),
                           rows_of(call.output("h"), b),
                           call.parameter("hold") != 0,
                           kept,
                           contract.state};
      scan.by_chunks(x, task % Di, call.chunk);
    };
  });
  hand_out(call, "gated", gated);
  project_output(call, unit, gated, contract.output);
  return {};
}

Outcome mamba2_mixer_chunks(const OperatorArguments& call, const Contract& contract) {
  require_chunk(call);
  const std::int64_t T = call.tokens;
  const std::int64_t H = call.parameter("H");
  const std::int64_t P = call.parameter("P");
  const std::int64_t N = call.parameter("N");
  const std::int64_t G = call.parameter("G");
  const std::int64_t Di = H * P;
  const Format kept = layer::kept(contract);
  const MatrixUnit unit = MatrixUnit::of(contract);
  const Block taps = layer::transposed(call.input("conv1d"));
  const Block projected = projected_input(call, unit, kept);  // z, x, B, C, dt
  const std::int64_t channels = taps.columns;

  Block convolved, y;
  convolved.resize(call.batch * T, channels);
  y.resize(call.batch * T, Di);
  for_each_tile(call, [&](std::int64_t b, std::int64_t begin, std::int64_t n) {
    const mixer::Convolution convolution = convolution_of(call, taps, projected, Di, b);
    for (std::int64_t i = 0; i < n; ++i) convolution.token(begin + i, kept, convolved.row(b * T + begin + i));
  });
  store_convolution_states(call, taps, projected, Di, contract.state);
  hand_out(call, "convolved", convolved);

  const std::vector<float> rates = rates_of(call.input("A_log"));
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, chunks = DualityChunks{}](std::int64_t task) mutable {
      const std::int64_t b = task / H;
      const std::int64_t h = task % H;
      const std::int64_t group = h / (H / G);
      const Block& in = convolved;
      chunks.run({part(in, b * T, T, h * P, P), part(projected, b * T, T, Di + channels + h, 1),
                  part(in, b * T, T, Di + group * N, N), part(in, b * T, T, Di + (G + group) * N, N),
                  rows_of(call.input("S"), b).rows(h * P, P), part(y, b * T, T, h * P, P),
                  rows_of(call.output("S"), b).rows(h * P, P), call.input("dt_bias").data[h],
                  rates[static_cast<std::size_t>(h)], call.input("skip").data[h], kept, contract.state, unit},
                 call.chunk);
    };
  });

  hand_out(call, "y", y);
  // The gate comes first and then the norm of each group (the reverse of rms_norm_gated's order).
  const std::int64_t width = Di / call.parameter("norm_groups");
  const float* weight = call.input("norm").data;
  for_each_tile(call, [&](std::int64_t b, std::int64_t begin, std::int64_t n) {
    for (std::int64_t row = b * T + begin; row < b * T + begin + n; ++row) {
      float* gated = y.row(row);
      for (std::int64_t c = 0; c < Di; ++c) gated[c] *= layer::silu(projected.row(row)[c]);
      for (std::int64_t first = 0; first < Di; first += width) {
        const float inverse = layer::inverse_root_mean_square(gated + first, width, kNormEpsilon);
        for (std::int64_t c = first; c < first + width; ++c) gated[c] = gated[c] * inverse * weight[c];
      }
      round_values(gated, gated, Di, kept);
    }
  });
  hand_out(call, "normed", y);
  project_output(call, unit, y, contract.output);
  return {};
}

}  // namespace samestate::cpu
