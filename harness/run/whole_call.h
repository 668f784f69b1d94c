#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/kernel_table.h"
#include "oracles/judge_policy.h"
#include "oracles/verdict.h"

namespace samestate {

/// One call of a case on its own dense tensors (LaidOutCall has other layouts), which can be made any number
/// of times and is judged by the outputs of the last one. It is the case's only call or, for named tensors
/// that decode, its last.
class WholeCall {
 public:
  virtual ~WholeCall() = default;
  WholeCall(const WholeCall&) = delete;
  WholeCall& operator=(const WholeCall&) = delete;

  /// Makes the calls before it. Throws what the kernel throws, and Unavailable.
  virtual void prepare(const KernelChoice&) {}
  /// Valid after prepare().
  [[nodiscard]] const KernelCall& call() const { return call_; }
  [[nodiscard]] const Contract& contract() const { return contract_; }
  /// The memory that its input tensors need, in order.
  [[nodiscard]] const std::vector<TensorPlace>& input_places() const { return input_places_; }
  [[nodiscard]] const std::vector<TensorPlace>& output_places() const { return output_places_; }
  /// The number of parts that are judged separately: (sequence, value head) pairs, or sequences.
  [[nodiscard]] virtual std::int64_t parts() const = 0;
  /// Judges one of them, as far as `policy` looks; `kernels` run again if that requires it.
  [[nodiscard]] virtual Judgement judge(std::int64_t part, const KernelChoice& kernels,
                                        const JudgePolicy& policy) const = 0;

 protected:
  WholeCall() = default;
  /// Sets the call to the first one of a loop, row-major, with inputs on the loop's data and outputs on
  /// `outputs`, which are resized. Both must outlive it.
  void lay_out(const CallLoop& loop, const std::vector<std::vector<float>*>& outputs);
  /// Adds tensors to the call, row-major, on memory that must outlive it; `place` has their shape.
  void input(const RunTensor& of, TensorPlace place, const std::vector<float>& data);
  void output(std::string_view name, TensorPlace place, std::vector<float>& data);
  void no_tensors();

  KernelCall call_;
  Contract contract_;  ///< the contract of the call

 private:
  std::vector<TensorPlace> input_places_, output_places_;
};

/// Throws Error, with the remedy, for a case without a single call that can be timed (one with a law, one of
/// the recurrent family that decodes, one without tokens), and for a layout that exists only to find faults.
void require_one_call(const Resolved& r);

/// A dense tensor on existing memory.
[[nodiscard]] StridedTensor row_major_tensor(float* data, std::vector<std::int64_t> shape);

/// Fills every output of a call with kPoison.
void poison(const KernelCall& call);

/// The first output that contains a NaN: inputs are finite, so outputs must be too, including the parts that
/// are not judged. Empty if there is none.
[[nodiscard]] std::string not_a_number(const KernelCall& call);

}  // namespace samestate
