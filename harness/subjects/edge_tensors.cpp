#include <nlohmann/json.hpp>
#include <optional>

#include "harness/cases/system.h"
#include "harness/run/call_loop.h"
#include "harness/run/contract_dtypes.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/edge_parts.h"

/// Calls of systems of named tensors.
namespace samestate {
namespace {

using Json = nlohmann::ordered_json;
using namespace edge_detail;

}  // namespace

EdgeCall::EdgeCall(const KernelCall& call, const Contract& contract, const Declaration& declaration)
    : keeps_strides_(declaration.strided), null_slot_(declaration.conventions.null_slot) {
  if (null_slot_ != Conventions::NullSlot::minus_one) slots_ = call.parameter(kSlots);
  const bool packed = call.cu_seqlens.present();
  const std::int64_t N = packed ? call.cu_seqlens.shape[0] - 1 : 0;
  // Tokens that belong to no sequence are not shown: for named tensors nothing says which of them have
  // tokens.
  const std::int64_t begin = packed ? call.cu_seqlens(0) : 0;
  const bool backward = call.setting("backward") != 0.0;
  // Gradients come in the formats that the forward call has; other named tensors are fp32 unless declared.
  const std::optional<ContractDtypes> formats =
      backward ? std::optional<ContractDtypes>(system_named(declaration.system)) : std::nullopt;
  const auto put = [&](const CallTensor& of, bool output) {
    const auto said = declaration.conventions.dtypes.find(of.name);
    EdgeTensor x{.name = std::string(of.name),
                 .dtype = said != declaration.conventions.dtypes.end() ? said->second
                          : formats                                    ? formats->of(of, output, contract)
                                                                       : Dtype::fp32,
                 .shape = of.shape};
    x.call = elements_of(of);
    if (packed && (of.axis == Axis::tokens || of.axis == Axis::prefix)) {
      x.call = x.call.slice(1, begin, call.cu_seqlens(N));
      x.shape = x.call.shape;
    }
    (output ? x.output : x.input) = true;
    if (slots_ > 0 && of.name == kPool)
      tensors_.push_back(with_null_slot(std::move(x)));
    else
      add(std::move(x));
  };
  if (null_slot_ == Conventions::NullSlot::none) {
    const View<const float, 2> slot = call.view<const float, 2>(kSlot);
    for (std::int64_t b = 0; b < call.batch; ++b) {
      if (slot(b, 0) < 0.0F) without_state_.push_back(b);
    }
  }
  for (const CallTensor& x : call.inputs) put(x, false);
  for (const CallTensor& x : call.outputs) put(x, true);
  if (packed) {
    EdgeTensor x{
        .name = "cu_seqlens", .dtype = declaration.conventions.offsets, .shape = {N + 1}, .input = true};
    for (std::int64_t n = 0; n <= N; ++n) x.whole_numbers.push_back(call.cu_seqlens(n) - begin);
    x.stride = {1};
    tensors_.push_back(std::move(x));
  }
  make_regions();
  Json parameters = Json::object();
  for (const auto& [name, value] : call.parameters)
    parameters[std::string(name)] = slots_ > 0 && name == kSlots ? value + 1 : value;
  Json head{{"type", "run"},           {"contract", contract.name}, {"batch", call.batch},
            {"tokens", call.tokens},   {"chunk", call.chunk()},     {"threads", call.threads},
            {"parameters", parameters}};
  if (backward) {
    head["scale"] = call.scale();
    head["heads"] = call.head_map() == HeadMap::tiled ? "tiled" : "interleaved";
    head["l2norm"] = call.l2norm();
  }
  head_ = head.dump();
}

EdgeTensor EdgeCall::with_null_slot(EdgeTensor x) const {
  const bool in_front = null_slot_ == Conventions::NullSlot::zero;
  x.shape[1] = slots_ + 1;
  x.stride = x.memory_stride = row_major_strides(x.shape);
  x.begin = in_front ? x.stride[1] : 0;
  x.nobodys = {in_front ? 0 : slots_ * x.stride[1], x.stride[1], x.stride[0], x.shape[0]};
  return x;
}

float EdgeCall::given_slot(float slot) const {
  if (null_slot_ == Conventions::NullSlot::zero) return slot < 0.0F ? 0.0F : slot + 1.0F;
  return slot < 0.0F ? static_cast<float>(slots_) : slot;
}

}  // namespace samestate
