#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/kernel.h"
#include "reference/axis.h"
#include "reference/contract.h"
#include "reference/error.h"
#include "reference/view.h"

/// The interface of code under test for systems other than the matrix recurrences: named tensors in, named
/// tensors out. `samestate list systems` shows which forms and sizes a system has, `samestate judge --tensors
/// LINE` which tensors.
namespace samestate {

/// A row-major tensor. Tensors of a sequence begin with the batch: [B, T, ...]; weights do not. In a packed
/// batch, tensors with tokens begin with [1, T, ...], where T counts the tokens of all sequences, and states
/// with the number of sequences.
template <class T>
struct NamedTensor {
  std::string_view name;
  std::vector<std::int64_t> shape;
  T* data = nullptr;
  /// Strides in elements, for a kernel that accepts strided tensors; empty if dense. The innermost is 1.
  std::vector<std::int64_t> stride = {};
  Axis axis = Axis::tokens;

  [[nodiscard]] std::int64_t extent(std::size_t d) const { return d < shape.size() ? shape[d] : 1; }
};

/// The tensors and settings of one call. All values are passed in fp32. Under a contract with 16-bit inputs,
/// activations, matrices and features are already representable in that format, whereas values that public
/// models keep in fp32 are fp32: weights of norms, biases, rates, gates, angles, states of recurrences and
/// masks (`samestate judge --tensors LINE` shows which). Every element of every output is written. Inputs and
/// outputs are separate memory. A kernel may rely on as little about alignment, sizes, strides (if its row
/// accepts them) and preceding calls as optimized/kernel.h says.
struct OperatorArguments {
  std::vector<NamedTensor<const float>> inputs;
  std::vector<NamedTensor<float>> outputs;
  std::vector<std::pair<std::string_view, std::int64_t>> parameters;
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  std::int64_t chunk =
      0;  ///< tile or chunk, for forms that have one; it is part of the request, as optimized/kernel.h explains
  int threads = 1;  ///< at most this many CPU threads
  /// [N + 1] for a packed batch: sequence n holds the tokens [c[n], c[n+1]). Absent if dense. As in
  /// optimized/kernel.h it may begin above 0 and end below T; rows of tokens of no sequence are not written.
  View<const std::int64_t, 1> cu_seqlens = {};

  /// Throw Error if there is no such tensor or parameter.
  [[nodiscard]] const NamedTensor<const float>& input(std::string_view name) const {
    return named(inputs, name, "input");
  }
  [[nodiscard]] const NamedTensor<float>& output(std::string_view name) const {
    return named(outputs, name, "output");
  }
  /// Null if the call does not ask for that tap.
  [[nodiscard]] const NamedTensor<float>* tap(std::string_view name) const {
    for (const NamedTensor<float>& tensor : outputs) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  [[nodiscard]] std::int64_t parameter(std::string_view name) const {
    for (const auto& [key, value] : parameters) {
      if (key == name) return value;
    }
    throw Error("the call has no parameter " + std::string(name));
  }

 private:
  template <class T>
  static const NamedTensor<T>& named(const std::vector<NamedTensor<T>>& list, std::string_view name,
                                     const char* what) {
    for (const NamedTensor<T>& tensor : list) {
      if (tensor.name == name) return tensor;
    }
    throw Error("the call has no " + std::string(what) + " " + std::string(name));
  }
};

/// One row of the table.
struct OperatorKernel {
  std::string name;    ///< device.system.form
  std::string system;  ///< a system in the table of operators
  std::string form;    ///< one of the system's forms; decode consists of calls of it
  std::string device;  ///< cpu or cuda
  std::vector<std::string> contracts;
  /// Evaluates one call. Must be safe to call from several threads at once.
  std::function<Outcome(const OperatorArguments&, const Contract&)> run = nullptr;
  bool strided = false;  ///< accepts tensors with arbitrary strides; if false, every tensor is dense
  /// Evaluates the same call many times, as Kernel::time. If empty, `samestate bench` measures `run` with the
  /// wall clock.
  std::function<Timing(const OperatorArguments&, const Contract&, const TimingRequest&)> time = nullptr;
  std::vector<std::string> limits = {};  ///< the calls that it accepts, as Kernel::limits
  /// Tensors between the stages of a layer that the kernel hands out if a call has outputs with their names:
  /// what its next stage read, value for value (docs/case-line.md lists those that a system knows). A call
  /// asks for all or none of them. For a tap that does not exist in some calls, a condition follows its name:
  /// "convolved if T != 1".
  std::vector<std::string> taps = {};
  bool packed = false;  ///< reads OperatorArguments::cu_seqlens; if false, it gets no packed batch
};

/// The table of this build.
[[nodiscard]] std::span<const OperatorKernel> operator_kernels();

}  // namespace samestate
