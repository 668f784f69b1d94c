#include "optimized/operator_kernel.h"

#include "optimized/cpu/operators/linear_attention.h"
#include "optimized/cpu/operators/retnet.h"
#include "reference/error.h"

namespace samestate {
namespace {

template <class List>
const auto& named(const List& list, std::string_view name, const char* what) {
  for (const auto& item : list) {
    if (item.name == name) return item;
  }
  throw Error("the call has no " + std::string(what) + " " + std::string(name));
}

}  // namespace

const NamedTensor<const float>& OperatorArguments::input(std::string_view name) const {
  return named(inputs, name, "input");
}

const NamedTensor<float>& OperatorArguments::output(std::string_view name) const {
  return named(outputs, name, "output");
}

std::int64_t OperatorArguments::parameter(std::string_view name) const {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
  }
  throw Error("the call has no parameter " + std::string(name));
}

// clang-format off
std::span<const OperatorKernel> operator_kernels() {
  using namespace cpu;
  static const std::vector<std::string> both = {"fp32", "bf16"};
  static const std::vector<OperatorKernel> TABLE = {
      {"cpu.linear_attention_bidirectional.state_first", "linear_attention_bidirectional", "state_first", "cpu", both, linear_attention_state_first},
      {"cpu.linear_attention_normalised.chunked",        "linear_attention_normalised",    "chunked",     "cpu", both, linear_attention_normalised_chunks},
      {"cpu.normalised_retention.chunked", "normalised_retention", "chunked", "cpu", both, normalised_retention_chunks},
      {"cpu.normalised_retention_recurrence.core", "normalised_retention_recurrence", "core", "cpu", both, normalised_retention_tokens},
      {"cpu.multi_scale_retention.chunked", "multi_scale_retention", "chunked", "cpu", both, multi_scale_retention_chunks},
  };
  return TABLE;
}
// clang-format on

}  // namespace samestate
