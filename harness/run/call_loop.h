#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/cases/layout.h"
#include "harness/run/guarded_tensor.h"
#include "optimized/kernel.h"
#include "optimized/kernel_call.h"
#include "oracles/path.h"
#include "oracles/systems/operator.h"
#include "reference/error.h"

/// How a case's tensors are passed to a kernel: every system and every kind of kernel goes through run_calls.
namespace samestate {

/// The kernel does not support this call, or has no device for it; run_case turns this into a verdict.
class Unavailable : public Error {
 public:
  explicit Unavailable(Outcome outcome) : Error(outcome.reason), kind(outcome.kind) {}
  Outcome::Kind kind;
};

/// The kernel modified memory that it must not write: its inputs, or elements around its outputs.
class Trespass : public Error {
 public:
  using Error::Error;
};

/// A kernel in another process threw, and that process continues.
class ThrewElsewhere : public Error {
 public:
  ThrewElsewhere(const std::string& what, bool refusal) : Error(what), refusal(refusal) {}
  bool refusal;  ///< it threw before it launched anything: it may not support the call
};

/// The same call with the same data gave different bits than before.
class Unrepeatable : public Error {
 public:
  using Error::Error;
};

struct RunOptions {
  Layout layout = Layout::dense;
  int threads = 1;
  FinalState final_state = FinalState::apart;
  std::int64_t lead = 0, slack = 0;  ///< packed: tokens around the sequences that belong to none of them
  bool repeat = false;               ///< each call is repeated as harness/run/repeated_call.h says
  bool deterministic = true;         ///< KernelRow::deterministic
  const Case* of = nullptr;  ///< the case that the calls belong to, for limits on properties that a call does
                             ///< not show
};

/// The elements of a tensor of a call, which the judge lays out in fp32, and the tensor with other elements.
/// Throws Error for a tensor of another type.
[[nodiscard]] StridedTensor elements_of(const CallTensor& x);
[[nodiscard]] CallTensor with_elements(CallTensor x, const StridedTensor& elements);

/// The elements in row-major order.
[[nodiscard]] std::vector<float> values_of(const StridedTensor& x);

/// A tensor of all calls together: [B, ...], or without the batch if it belongs to no sequence.
struct RunTensor {
  std::string name;
  Axis axis = Axis::tokens;
  bool batched = true;
  std::vector<std::int64_t> shape;           ///< including the batch's extent
  const std::vector<float>* data = nullptr;  ///< for an input; null if it is absent until it is carried
  std::string carried_as = {};               ///< for an output: the input of the next call that it becomes
  bool indices = false;  ///< its values are positions in another tensor, such as slots of a pool
};

/// Successive calls of one kernel, with states carried from each to the next.
struct CallLoop {
  std::vector<RunTensor> inputs, outputs;
  std::vector<std::int64_t> offsets;  ///< for packed sequences; otherwise empty
  KernelCall settings;                ///< those of every call, except for tensors, tokens and chunk
  Path path;
  Index given = 0;        ///< tokens whose call is not made, because later calls receive their rows as inputs
  bool in_place = false;  ///< states are carried in place, and calls receive views of whole tensors
};

/// Makes one call along a segment. Throws Unavailable if the kernel did not run.
using OneCall = std::function<void(const Segment&, const KernelCall&)>;

/// Makes the calls and returns the outputs in order, row-major, without the tokens that belong to no
/// sequence. Outputs hold stale values (guard.h) before they are written; inputs, padding, tokens of no
/// sequence and guard elements around every buffer are checked afterwards. Throws Unavailable, Trespass and
/// Unrepeatable.
[[nodiscard]] std::vector<std::vector<float>> run_calls(const CallLoop& loop, const RunOptions& options,
                                                        const OneCall& call);

}  // namespace samestate
