#include "optimized/cuda/experts/routing.cuh"

#include <algorithm>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/experts/logits.cuh"
#include "optimized/cuda/experts/routing_groups.cuh"
#include "optimized/cuda/host/call.cuh"

/// Rows of the table: the routers of experts and their load.
namespace samestate::cuda {
namespace {

/// Computes x w^T, plus the bias if there is one.
template <class Operand>
LogitsProduct<Operand> logits_of(const OperatorArguments& call, DeviceTensors<Operand>& tensors, Operand* to,
                                 const float* bias) {
  return LogitsProduct<Operand>::of(tensors.operand("x"), tensors.operand("router"), to, bias,
                                    call.batch * call.tokens, call.parameter("N"), call.parameter("D"),
                                    tensors);
}

struct ExpertRouter {
  template <class Operand>
  struct Parameters {
    LogitsProduct<Operand> logits;
    RoutingParameters<Operand> routing;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    Operand* const logits = tensors.output("logits");
    p.logits = logits_of(call, tensors, logits, call.parameter("bias") == 1 ? tensors.fp32("bias") : nullptr);
    p.routing = {logits,
                 call.batch * call.tokens,
                 static_cast<int>(call.parameter("N")),
                 static_cast<int>(call.parameter("K")),
                 tensors.output("probabilities"),
                 tensors.output("weights")};
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    p.logits.launch(stream);
    route_tokens<false>(p.routing, stream);
  }
};

struct GroupLimitedRouter {
  template <class Operand>
  struct Parameters {
    LogitsProduct<Operand> logits;
    GroupRoutingParameters<Operand> routing;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    Operand* const logits = tensors.output("logits");
    p.logits = logits_of<Operand>(call, tensors, logits, nullptr);
    p.routing = {logits,
                 call.parameter("bias") == 1 ? tensors.fp32("selection_bias") : nullptr,
                 tensors.fp32("scaling"),
                 call.batch * call.tokens,
                 static_cast<int>(call.parameter("N")),
                 static_cast<int>(call.parameter("G")),
                 static_cast<int>(call.parameter("M")),
                 static_cast<int>(call.parameter("K")),
                 tensors.output("probabilities"),
                 tensors.output("weights")};
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    p.logits.launch(stream);
    route_tokens_in_groups(p.routing, stream);
  }
};

struct LoadBalance {
  template <class Operand>
  using Parameters = LoadParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.logits = tensors.operand("logits");
    p.mask = tensors.fp32("mask");
    p.alpha = tensors.fp32("alpha");
    p.load = tensors.output("load");
    p.mean = tensors.output("mean");
    p.loss = tensors.output("loss");
    p.batch = call.batch;
    p.tokens = call.tokens;
    p.experts = static_cast<int>(call.parameter("N"));
    p.chosen = static_cast<int>(call.parameter("K"));
    p.per_token = call.parameter("per_token") == 1;
    // One block adds up the parts of a sequence; two waves of blocks divide all tokens.
    constexpr std::int64_t kMostParts = 128, kBlocks = 1056, kLeast = 32;
    p.part_tokens = std::max(
        {(p.tokens + kMostParts - 1) / kMostParts, (p.batch * p.tokens + kBlocks - 1) / kBlocks, kLeast});
    p.parts = (p.tokens + p.part_tokens - 1) / p.part_tokens;
    p.counted = tensors.template scratch<std::int32_t>(p.batch * p.parts);
    p.assigned = tensors.template scratch<std::int32_t>(p.batch * p.parts * p.experts);
    p.sums = tensors.template scratch<float>(p.batch * p.parts * p.experts);
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    with_slots<Operand>(p.experts, [&]<int slots, int n>() {
      using Part = LoadOfPart<Operand, slots, n>;
      launch<Part>(blocks_of(p.batch * p.parts, 1), Part::shared_bytes(p), p, stream);
    });
    using Whole = LoadOfSequence<Operand>;
    launch<Whole>(blocks_of(p.batch, 1), Whole::kWarps * sizeof(float), p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> routing_kernels() {
  return {row<ExpertRouter>("expert_router", "logits_first"),
          row<GroupLimitedRouter>("group_limited_router", "ordered"),
          row<LoadBalance>("load_balance", "direct")};
}

}  // namespace samestate::cuda
