#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/call_tensor.h"
#include "reference/contract.h"
#include "reference/error.h"
#include "reference/view.h"

/// One call of a kernel of any system, with tensors and settings by name. The rules of optimized/kernel.h on
/// memory, strides, alignment and repetition apply. A kernel of a table row (optimized/call_kernel.h) asks
/// for what it reads: `call.view<const float, 4>("q")`, `call.parameter("dk")`, `call.setting("scale")`.
namespace samestate {

/// A setting that a call may have, by name.
struct CallSetting {
  std::string_view name;
  double standard;  ///< the value in a call that does not set it
  std::string_view summary;
};

/// All settings. Adding a row here does not change the layout of a call.
inline constexpr std::array<CallSetting, 5> kCallSettings{{
    {"scale", 1.0, "multiplies the output; any finite number"},
    {"chunk", 0.0, "tokens a chunk or rows a tile, part of what is asked for; 0: the form has none"},
    {"tiled", 0.0, "1: value head h reads key head h mod Hk, 0: h / (Hv / Hk)"},
    {"l2norm", 0.0, "1: q and k are normalised first, x (sum x^2 + 1e-6)^-1/2"},
    {"backward", 0.0, "direction: 0 the system's equation, 1 its gradients"},
}};

/// One call of a kernel. The names must live as long as the call.
struct KernelCall {
  std::string_view system = {}, form = {};  ///< those of the row that is called
  std::vector<CallTensor> inputs = {}, outputs = {};
  /// [N + 1] for a packed batch: sequence n holds the tokens [c[n], c[n + 1]). Absent if dense
  /// (optimized/kernel.h).
  View<const std::int64_t, 1> cu_seqlens = {};
  std::vector<std::int64_t> cuts = {};  ///< [ranks + 1], as Arguments::cuts; empty for one rank, or a form
                                        ///< without ranks
  bool divides_heads = false;           ///< cuts divide value heads instead of tokens
  std::vector<std::pair<std::string_view, std::int64_t>> parameters = {};  ///< sizes, such as Hk or dv
  std::vector<std::pair<std::string_view, double>> settings = {};          ///< only those that were set
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  int threads = 1;  ///< at most this many CPU threads

  /// The input of that name; null if the call has none. A state may be both an input and an output with one
  /// name.
  [[nodiscard]] const CallTensor* input(std::string_view name) const { return find(inputs, name); }
  [[nodiscard]] const CallTensor* output(std::string_view name) const { return find(outputs, name); }

  /// The input of that name if T is const, else the output; an absent view if there is none. Throws Error as
  /// CallTensor::view does.
  template <class T, std::size_t Rank>
  [[nodiscard]] View<T, Rank> view(std::string_view name) const {
    const CallTensor* x = std::is_const_v<T> ? input(name) : output(name);
    return x == nullptr ? View<T, Rank>{} : x->view<T, Rank>();
  }

  /// The size of that name. Throws Error if the call has none.
  [[nodiscard]] std::int64_t parameter(std::string_view name) const {
    for (const auto& [key, value] : parameters) {
      if (key == name) return value;
    }
    throw Error("the call has no parameter " + std::string(name));
  }

  /// The value that was set, or else the standard one. Throws Error for a name that kCallSettings does not
  /// have.
  [[nodiscard]] double setting(std::string_view name) const {
    for (const auto& [key, value] : settings) {
      if (key == name) return value;
    }
    return row(name).standard;
  }
  void set(std::string_view name, double value) {
    const CallSetting& of = row(name);
    std::erase_if(settings, [&](const auto& one) { return one.first == name; });
    settings.emplace_back(of.name, value);
  }
  [[nodiscard]] float scale() const { return static_cast<float>(setting("scale")); }
  [[nodiscard]] std::int64_t chunk() const { return static_cast<std::int64_t>(setting("chunk")); }
  [[nodiscard]] bool l2norm() const { return setting("l2norm") != 0.0; }
  [[nodiscard]] HeadMap head_map() const {
    return setting("tiled") != 0.0 ? HeadMap::tiled : HeadMap::interleaved;
  }

 private:
  static const CallTensor* find(const std::vector<CallTensor>& list, std::string_view name) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const auto& x) { return x.name == name; });
    return at == list.end() ? nullptr : &*at;
  }
  static const CallSetting& row(std::string_view name) {
    for (const CallSetting& one : kCallSettings) {
      if (one.name == name) return one;
    }
    throw Error("no setting " + std::string(name) + ": kCallSettings of optimized/kernel_call.h has them");
  }
};

}  // namespace samestate
