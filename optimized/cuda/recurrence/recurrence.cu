#include "optimized/cuda/recurrence/launch.cuh"

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"

/// Rows of the table: linear attention with a normaliser or without a mask, RetNet's retention.
namespace samestate::cuda {
namespace {

template <class Operand>
RecurrenceParameters<Operand> read_call(const OperatorArguments& call, DeviceTensors<Operand>& tensors,
                                        RecurrenceOutput output, bool whole = false) {
  RecurrenceParameters<Operand> p;
  p.q = tensors.operand("q");
  p.k = tensors.operand("k");
  p.v = tensors.operand("v");
  p.o = tensors.output("o");
  p.batch = call.batch;
  p.tokens = call.tokens;
  p.heads = static_cast<int>(call.parameter("H"));
  p.dk = static_cast<int>(call.parameter("dk"));
  p.dv = static_cast<int>(call.parameter("dv"));
  p.output = output;
  p.whole = whole;
  plan_recurrence(p);
  return p;
}

template <class Operand>
void read_states(RecurrenceParameters<Operand>& p, DeviceTensors<Operand>& tensors, const char* sums) {
  p.state = tensors.fp32("S");
  p.sums = tensors.fp32(sums);
  p.final_state = tensors.fp32_output("S");
  p.final_sums = tensors.fp32_output(sums);
  make_carried(p, tensors, p.segments - 1);
}

/// Rows that are a recurrence and nothing else.
struct RecurrenceAlone {
  template <class Operand>
  using Parameters = RecurrenceParameters<Operand>;
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_recurrence(p, stream);
  }
};

struct NormalisedLinearAttention : RecurrenceAlone {
  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p = read_call(call, tensors, RecurrenceOutput::over_sums);
    read_states(p, tensors, "z");
    return p;
  }
};

struct BidirectionalLinearAttention : RecurrenceAlone {
  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p = read_call(call, tensors, RecurrenceOutput::rounded, true);
    make_carried(p, tensors, p.segments);
    p.final_state = tensors.template scratch<float>(p.states() * p.dk * p.dv);
    return p;
  }
};

struct NormalisedRetentionRecurrence : RecurrenceAlone {
  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p = read_call(call, tensors, RecurrenceOutput::over_root);
    p.decays = true;
    read_states(p, tensors, "s");
    return p;
  }
};

template <class Operand>
struct NormalisedRetentionParameters {
  RecurrenceParameters<Operand> core;
  RowScaleParameters<Operand> norm;
};

/// The norm cancels any factor by which a form divides a row (EQ-11), so the core does not divide.
struct NormalisedRetention {
  template <class Operand>
  using Parameters = NormalisedRetentionParameters<Operand>;
  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.core = read_call(call, tensors, RecurrenceOutput::raw);
    p.core.decays = true;
    make_carried(p.core, tensors, p.core.segments - 1);
    p.norm.rows = call.batch * call.tokens * p.core.heads;
    p.norm.width = p.core.dv;
    p.core.raw = tensors.template scratch<float>(p.norm.rows * p.norm.width);
    p.norm.x = p.core.raw;
    p.norm.y = p.core.o;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_recurrence(p.core, stream);
    EachWarp<ScaleRows<Operand>>::launch(p.norm, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> recurrence_kernels() {
  return {row<NormalisedLinearAttention>("linear_attention_normalised", "recurrent"),
          row<BidirectionalLinearAttention>("linear_attention_bidirectional", "state_first"),
          row<NormalisedRetentionRecurrence>("normalised_retention_recurrence", "core"),
          row<NormalisedRetention>("normalised_retention", "chunked")};
}

}  // namespace samestate::cuda
