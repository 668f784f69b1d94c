#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/scan/scan_token_fma.cuh"

/// Rows of the table: state spaces.
namespace samestate::cuda {
namespace {

template <class Operand>
struct HeldScanParameters {
  SelectiveScanParameters<Operand> scan;
  bool hold = false;  ///< zero-order hold, else Euler
};

struct SelectiveScanRow {
  template <class Operand>
  using Parameters = HeldScanParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.scan.u = tensors.operand("u");
    p.scan.dt = tensors.operand("dt");
    p.scan.z = tensors.operand("z");
    p.scan.B = tensors.operand("B");
    p.scan.C = tensors.operand("C");
    p.scan.A_log = tensors.fp32("A_log");
    p.scan.dt_bias = tensors.fp32("dt_bias");
    p.scan.skip = tensors.fp32("skip");
    p.scan.state = tensors.fp32("h");
    p.scan.last_state = tensors.fp32_output("h");
    p.scan.out = tensors.output("out");
    p.scan.batch = call.batch;
    p.scan.tokens = call.tokens;
    p.scan.D = static_cast<int>(call.parameter("D"));
    p.scan.N = static_cast<int>(call.parameter("N"));
    p.hold = call.parameter("hold") != 0;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (p.hold) return launch_selective_scan<Operand, true>(p.scan, stream);
    launch_selective_scan<Operand, false>(p.scan, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> scan_kernels() {
  return {row<SelectiveScanRow>("selective_scan", "recurrent", {"N <= 256"})};
}

}  // namespace samestate::cuda
