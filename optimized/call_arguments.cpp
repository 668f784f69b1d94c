#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/call_kernel.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Throws Error if the call sets something outside `known`: the struct that the kernel reads would drop it
/// silently.
void require_settings(const KernelCall& call, std::span<const std::string_view> known, const char* type) {
  for (const auto& [name, value] : call.settings) {
    const bool standard =
        std::ranges::any_of(kCallSettings, [&, name = name, value = value](const CallSetting& row) {
          return row.name == name && row.standard == value;
        });
    if (standard || std::ranges::find(known, name) != known.end()) continue;
    throw Error("the call sets " + std::string(name) + "=" + std::to_string(value) + ", and " + type +
                " has no place for it: write the kernel as a row of " + std::string(kCallRows));
  }
}

template <class T>
NamedTensor<T> named_tensor(const CallTensor& x) {
  if (x.dtype != Dtype::fp32)
    throw Error("tensor " + std::string(x.name) +
                " is not fp32, which every tensor of OperatorArguments is: write the kernel as a row of " +
                std::string(kCallRows));
  return {x.name, x.shape, static_cast<T*>(x.data), x.dense() ? std::vector<std::int64_t>{} : x.stride,
          x.axis};
}

}  // namespace

Arguments arguments_of(const KernelCall& call) {
  static constexpr std::array<std::string_view, 4> kKnown{"scale", "chunk", "tiled", "l2norm"};
  require_settings(call, kKnown, "Arguments");
  Arguments a;
  a.q = call.view<const float, 4>("q");
  a.k = call.view<const float, 4>("k");
  a.v = call.view<const float, 4>("v");
  a.g = call.view<const float, 3>("g");
  a.beta = call.view<const float, 3>("beta");
  a.initial_state = call.view<const float, 4>("initial_state");
  a.cu_seqlens = call.cu_seqlens;
  a.o = call.view<float, 4>("o");
  a.final_state = call.view<float, 4>("final_state");
  a.scale = call.scale();
  a.chunk = call.chunk();
  a.head_map = call.head_map();
  a.l2norm = call.l2norm();
  a.threads = call.threads;
  if (!call.cuts.empty())
    a.cuts = row_major<const std::int64_t, 1>(call.cuts.data(), {std::ssize(call.cuts)});
  return a;
}

OperatorArguments operator_arguments_of(const KernelCall& call) {
  // The judge's repetitions change these in every call, and systems of named tensors read only the chunk.
  // A call for gradients names them, so that `backward` says nothing more; a forward kernel would ignore it.
  static constexpr std::array<std::string_view, 5> kKnown{"scale", "chunk", "tiled", "l2norm", "backward"};
  const bool gradients =
      std::ranges::any_of(call.outputs, [](const CallTensor& x) { return x.name.starts_with("d."); });
  require_settings(call, std::span(kKnown).first(gradients ? kKnown.size() : kKnown.size() - 1),
                   "OperatorArguments");
  OperatorArguments a;
  for (const CallTensor& x : call.inputs) a.inputs.push_back(named_tensor<const float>(x));
  for (const CallTensor& x : call.outputs) a.outputs.push_back(named_tensor<float>(x));
  a.parameters = call.parameters;
  a.batch = call.batch;
  a.tokens = call.tokens;
  a.chunk = call.chunk();
  a.threads = call.threads;
  a.cu_seqlens = call.cu_seqlens;
  return a;
}

}  // namespace samestate
