#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/products/projection.cuh"
#include "optimized/cuda/scan/duality_launch.cuh"
#include "optimized/cuda/scan/scan_token_fma.cuh"

/// Rows of the table: Mamba's mixers. The parts of a projection are separate products, each with some rows of
/// one matrix, so that every part is dense for whatever reads it next; the last few inputs of the convolution
/// stay side by side in the state.
namespace samestate::cuda {
namespace {

/// Channels [first, first + channels) of the convolution: their inputs are projected and then convolved.
template <class Operand>
struct ConvolvedPartOfLayer {
  Projection<Operand> raw;
  ConvolutionParameters<Operand> convolved;

  void enqueue(cudaStream_t stream) const {
    project(raw, stream);
    launch_convolution(convolved, stream);
  }
};

/// The tensors that both mixers compute before their scans.
template <class Operand>
struct MixerInputs {
  const OperatorArguments& call;
  DeviceTensors<Operand>& tensors;
  std::int64_t rows, D, W, all_channels;
  const Operand *hidden, *in_proj, *kernel, *past;
  const float* bias;
  Operand* carried;

  MixerInputs(const OperatorArguments& of, DeviceTensors<Operand>& on, std::int64_t channels)
      : call(of),
        tensors(on),
        rows(of.batch * of.tokens),
        D(of.parameter("D")),
        W(of.parameter("W")),
        all_channels(channels),
        hidden(on.operand("hidden")),
        in_proj(on.operand("in_proj")),
        kernel(on.operand("conv1d")),
        past(on.operand("convolution")),
        bias(on.fp32("conv1d_bias")),
        carried(on.output("convolution")) {}

  /// Returns rows [first, first + columns) of the input projection.
  [[nodiscard]] Projection<Operand> part(std::int64_t first, std::int64_t columns) const {
    return projection(hidden, in_proj + first * D, tensors.template scratch<Operand>(rows * columns), rows,
                      columns, D);
  }
  /// Returns the channels from `channel` on, which begin at row `first` of the projection.
  [[nodiscard]] ConvolvedPartOfLayer<Operand> convolved(std::int64_t first, std::int64_t channel,
                                                        std::int64_t channels) const {
    ConvolvedPartOfLayer<Operand> p;
    p.raw = part(first, channels);
    p.convolved.x = p.raw.epilogue.y;
    p.convolved.kernel = kernel + channel * W;
    p.convolved.bias = bias + channel;
    p.convolved.past = past + channel;
    p.convolved.carried = carried + channel;
    p.convolved.state_stride = all_channels;
    p.convolved.y = tensors.template scratch<Operand>(rows * channels);
    p.convolved.batch = call.batch;
    p.convolved.tokens = call.tokens;
    p.convolved.channels = static_cast<int>(channels);
    p.convolved.W = static_cast<int>(W);
    return p;
  }
};

struct MambaMixer {
  template <class Operand>
  struct Parameters {
    ConvolvedPartOfLayer<Operand> u;
    Projection<Operand> z, low_rank, B, C, dt, out;
    SelectiveScanParameters<Operand> scan;
    bool hold = false;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t Di = call.parameter("Di"), N = call.parameter("N"), R = call.parameter("R");
    const MixerInputs<Operand> inputs(call, tensors, Di);
    const std::int64_t rows = inputs.rows;
    const auto operands = [&](std::int64_t columns) {
      return tensors.template scratch<Operand>(rows * columns);
    };
    Parameters<Operand> p;
    p.u = inputs.convolved(0, 0, Di);
    p.z = inputs.part(Di, Di);
    const Operand *const u = p.u.convolved.y, *const x_proj = tensors.operand("x_proj");
    p.low_rank = projection(u, x_proj, operands(R), rows, R, Di);
    p.B = projection(u, x_proj + R * Di, operands(N), rows, N, Di);
    p.C = projection(u, x_proj + (R + N) * Di, operands(N), rows, N, Di);
    p.dt = projection<Operand>(p.low_rank.epilogue.y, tensors.operand("dt_proj"), operands(Di), rows, Di, R);
    p.scan.u = u;
    p.scan.dt = p.dt.epilogue.y;
    p.scan.z = p.z.epilogue.y;
    p.scan.B = p.B.epilogue.y;
    p.scan.C = p.C.epilogue.y;
    p.scan.A_log = tensors.fp32("A_log");
    p.scan.dt_bias = tensors.fp32("dt_bias");
    p.scan.skip = tensors.fp32("skip");
    p.scan.state = tensors.fp32("h");
    p.scan.last_state = tensors.fp32_output("h");
    p.scan.out = operands(Di);
    p.scan.batch = call.batch;
    p.scan.tokens = call.tokens;
    p.scan.D = static_cast<int>(Di);
    p.scan.N = static_cast<int>(N);
    p.hold = call.parameter("hold") != 0;
    p.out = projection<Operand>(p.scan.out, tensors.operand("out_proj"), tensors.output("out"), rows,
                                inputs.D, Di);
    const std::int64_t selected = R + 2 * N;
    tensors.tap("projected", {tap_rows(p.u.convolved.x, rows, Di, Di, 2 * Di),
                              tap_rows(p.scan.z, rows, Di, Di, 2 * Di, Di)});
    tensors.tap("u", {tap_all(u, rows, Di)});
    tensors.tap("selected",
                {tap_rows(p.dt.x, rows, R, R, selected), tap_rows(p.scan.B, rows, N, N, selected, R),
                 tap_rows(p.scan.C, rows, N, N, selected, R + N)});
    tensors.tap("dt", {tap_all(p.scan.dt, rows, Di)});
    tensors.tap("gated", {tap_all(p.out.x, rows, Di)});
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    p.u.enqueue(stream);
    for (const auto* product : {&p.z, &p.low_rank, &p.B, &p.C, &p.dt}) project(*product, stream);
    if (p.hold) {
      launch_selective_scan<Operand, true>(p.scan, stream);
    } else {
      launch_selective_scan<Operand, false>(p.scan, stream);
    }
    project(p.out, stream);
  }
};

struct Mamba2Mixer {
  template <class Operand>
  struct Parameters {
    ConvolvedPartOfLayer<Operand> x, B, C;
    Projection<Operand> z, dt, out;
    DualityParameters<Operand> duality;
    NormParameters<Operand> norm;  ///< for y silu(z), over equal parts of a token's channels (EQUATIONS 5.10)
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t H = call.parameter("H"), groups = call.parameter("norm_groups");
    const std::int64_t Di = H * call.parameter("P"), GN = call.parameter("G") * call.parameter("N");
    const MixerInputs<Operand> inputs(call, tensors, Di + 2 * GN);
    const std::int64_t rows = inputs.rows;
    Parameters<Operand> p;
    p.z = inputs.part(0, Di);
    p.x = inputs.convolved(Di, 0, Di);
    p.B = inputs.convolved(2 * Di, Di, GN);
    p.C = inputs.convolved(2 * Di + GN, Di + GN, GN);
    p.dt = inputs.part(2 * Di + 2 * GN, H);
    p.duality = duality_of<Operand>(call, tensors);
    p.duality.x = p.x.convolved.y;
    p.duality.B = p.B.convolved.y;
    p.duality.C = p.C.convolved.y;
    p.duality.dt = p.dt.epilogue.y;
    p.duality.dt_bias = tensors.fp32("dt_bias");
    p.duality.A_log = tensors.fp32("A_log");
    p.duality.skip = tensors.fp32("skip");
    p.duality.state = tensors.fp32("S");
    p.duality.last_state = tensors.fp32_output("S");
    p.duality.y = tensors.template scratch<Operand>(rows * Di);
    p.norm.x = p.duality.y;
    p.norm.second = p.z.epilogue.y;
    p.norm.weight = tensors.fp32("norm");
    p.norm.y = tensors.template scratch<Operand>(rows * Di);
    p.norm.rows = rows * groups;
    p.norm.groups = static_cast<int>(groups);
    p.norm.width = static_cast<int>(Di / groups);
    p.norm.epsilon = 1e-5F;
    p.out =
        projection<Operand>(p.norm.y, tensors.operand("out_proj"), tensors.output("out"), rows, inputs.D, Di);
    const std::int64_t channels = Di + 2 * GN, projected = Di + channels + H;
    tensors.tap("projected", {tap_rows(p.norm.second, rows, Di, Di, projected),
                              tap_rows(p.x.convolved.x, rows, Di, Di, projected, Di),
                              tap_rows(p.B.convolved.x, rows, GN, GN, projected, 2 * Di),
                              tap_rows(p.C.convolved.x, rows, GN, GN, projected, 2 * Di + GN),
                              tap_rows(p.duality.dt, rows, H, H, projected, Di + channels)});
    tensors.tap("convolved", {tap_rows(p.duality.x, rows, Di, Di, channels),
                              tap_rows(p.duality.B, rows, GN, GN, channels, Di),
                              tap_rows(p.duality.C, rows, GN, GN, channels, Di + GN)});
    tensors.tap("y", {tap_all(p.norm.x, rows, Di)});
    tensors.tap("normed", {tap_all(p.out.x, rows, Di)});
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    project(p.z, stream);
    for (const auto* part : {&p.x, &p.B, &p.C}) part->enqueue(stream);
    project(p.dt, stream);
    launch_duality(p.duality, stream);
    launch_norm<RowNorm::gate_first>(p.norm, stream);
    project(p.out, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> mixer_kernels() {
  return {
      row<MambaMixer>("mamba_mixer", "recurrent", {"N <= 256"},
                      {"projected", "u", "selected", "dt", "gated"}),
      row<Mamba2Mixer>("mamba2_mixer", "chunked", {"N <= 256"}, {"projected", "convolved", "y", "normed"})};
}

}  // namespace samestate::cuda
