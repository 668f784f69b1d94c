#include "optimized/cuda/operators/call.cuh"
#include "optimized/cuda/operators/kernels.h"
#include "optimized/cuda/operators/norms.cuh"

/// Rows of the table: norms of rows.
namespace samestate::cuda {
namespace {

template <class Operand, RowNorm norm, int lanes, int loads>
struct RowsOfLanes {
  using Parameters = NormParameters<Operand>;
  static constexpr int kRows = 32 / lanes;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return (p.rows + kRows - 1) / kRows;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t group) {
    norm_rows<Operand, norm, lanes, loads>(p, group);
  }
};

template <class Operand, RowNorm norm>
struct AnyRow {
  using Parameters = NormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) { norm_row<Operand, norm>(p, row); }
};

template <RowNorm norm>
struct Norms {
  template <class Operand>
  using Parameters = NormParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.width = static_cast<int>(call.parameter("D"));
    p.rows = call.batch * call.tokens * call.parameter("H");
    p.x = tensors.operand("x");
    if constexpr (norm == RowNorm::residual) p.second = tensors.operand("residual");
    if constexpr (norm == RowNorm::gated || norm == RowNorm::gate_first) p.second = tensors.operand("z");
    if constexpr (norm != RowNorm::l2) p.weight = tensors.fp32("weight");
    p.y = tensors.output("y");
    if constexpr (norm == RowNorm::residual) p.sum = tensors.output("sum");
    return p;
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.width % n != 0 || p.width > 32 * 8 * n) {
      EachWarp<AnyRow<Operand, norm>>::launch(p, stream);
    } else if (p.width <= 8 * n) {
      EachWarp<RowsOfLanes<Operand, norm, 8, 1>>::launch(p, stream);
    } else if (p.width <= 16 * n) {
      EachWarp<RowsOfLanes<Operand, norm, 16, 1>>::launch(p, stream);
    } else if (p.width <= 32 * n) {
      EachWarp<RowsOfLanes<Operand, norm, 32, 1>>::launch(p, stream);
    } else if (p.width <= 32 * 2 * n) {
      EachWarp<RowsOfLanes<Operand, norm, 32, 2>>::launch(p, stream);
    } else if (p.width <= 32 * 4 * n) {
      EachWarp<RowsOfLanes<Operand, norm, 32, 4>>::launch(p, stream);
    } else {
      EachWarp<RowsOfLanes<Operand, norm, 32, 8>>::launch(p, stream);
    }
  }
};

}  // namespace

std::vector<OperatorKernel> norm_kernels() {
  return {row<Norms<RowNorm::plain>>("rms_norm", "fused"),
          row<Norms<RowNorm::zero_centred>>("zero_centred_rms_norm", "fused"),
          row<Norms<RowNorm::residual>>("residual_rms_norm", "fused"),
          row<Norms<RowNorm::gated>>("gated_rms_norm", "fused"),
          row<Norms<RowNorm::gate_first>>("gate_first_rms_norm", "fused"),
          row<Norms<RowNorm::l2>>("l2norm", "fused")};
}

}  // namespace samestate::cuda
