#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/kernel_table.h"
#include "oracles/judge_policy.h"
#include "oracles/verdict.h"

namespace samestate {

/// A call of a case on dense tensors of its own (LaidOutCall has others), made as often as one likes, and judged by what the
/// last one wrote: the only one, or of named tensors that decode the last, behind those before it.
class WholeCall {
 public:
  virtual ~WholeCall() = default;
  WholeCall(const WholeCall&) = delete;
  WholeCall& operator=(const WholeCall&) = delete;

  /// Makes the calls before it. Throws what the kernel throws, and Unavailable.
  virtual void prepare(const KernelChoice&) {}
  /// After prepare().
  [[nodiscard]] const KernelCall& call() const { return call_; }
  [[nodiscard]] const Contract& contract() const { return contract_; }
  /// What its tensors ask of memory, in their order.
  [[nodiscard]] const std::vector<TensorPlace>& input_places() const { return input_places_; }
  [[nodiscard]] const std::vector<TensorPlace>& output_places() const { return output_places_; }
  /// Parts that are judged apart: (sequence, value head) pairs, or sequences.
  [[nodiscard]] virtual std::int64_t parts() const = 0;
  /// One of them, as far as `policy` looks; `kernels` run again where that asks for it.
  [[nodiscard]] virtual Judgement judge(std::int64_t part, const KernelChoice& kernels,
                                        const JudgePolicy& policy) const = 0;

 protected:
  WholeCall() = default;
  /// The first call of a loop, row-major: its inputs on the loop's data, its outputs on `outputs`, which get their size. Both
  /// outlive it.
  void lay_out(const CallLoop& loop, const std::vector<std::vector<float>*>& outputs);
  /// Tensors of the call, row-major, on memory that outlives it; `place` has their shape.
  void input(const RunTensor& of, TensorPlace place, const std::vector<float>& data);
  void output(std::string_view name, TensorPlace place, std::vector<float>& data);
  void no_tensors();

  KernelCall call_;
  Contract contract_;  ///< of the call

 private:
  std::vector<TensorPlace> input_places_, output_places_;
};

/// Throws Error, with the remedy, for a case that has no one call to time: one with a law, one of the recurrent family that
/// decodes, one without tokens; and for a layout that is there to find faults.
void require_one_call(const Resolved& r);

/// A dense tensor on memory that is there.
[[nodiscard]] StridedTensor row_major_tensor(float* data, std::vector<std::int64_t> shape);

/// Fills every output of a call with kPoison.
void poison(const KernelCall& call);

/// The first output that holds a NaN: inputs are finite and so are outputs, in the parts that nobody judges
/// too. Empty: none.
[[nodiscard]] std::string not_a_number(const KernelCall& call);

}  // namespace samestate
