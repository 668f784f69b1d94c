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

/// How a case's tensors meet a kernel: every system and every kind of kernel goes through run_calls.
namespace samestate {

/// The kernel does not do this call, or there is no device for it: a verdict, which run_case makes of it.
class Unavailable : public Error {
 public:
  explicit Unavailable(Outcome outcome) : Error(outcome.reason), kind(outcome.kind) {}
  Outcome::Kind kind;
};

/// The kernel touched memory that is not its to write: its inputs, or elements around its outputs.
class Trespass : public Error {
 public:
  using Error::Error;
};

/// A kernel of another process threw, and that process goes on.
class ThrewElsewhere : public Error {
 public:
  ThrewElsewhere(const std::string& what, bool refusal) : Error(what), refusal(refusal) {}
  bool refusal;  ///< it threw before it launched anything: the call may be one that it does not take
};

/// The same call with the same data gave other bits than before.
class Unrepeatable : public Error {
 public:
  using Error::Error;
};

struct RunOptions {
  Layout layout = Layout::dense;
  int threads = 1;
  FinalState final_state = FinalState::apart;
  std::int64_t lead = 0, slack = 0;  ///< packed: tokens around the sequences that belong to none
  bool repeat = false;               ///< each call as harness/run/repeated_call.h says
  const Case* of = nullptr;          ///< whose calls they are, for limits that name what no call shows
};

/// The elements of a tensor of a call, which the judge lays out in fp32, and the tensor with other elements. Throws Error for one
/// of another type.
[[nodiscard]] StridedTensor elements_of(const CallTensor& x);
[[nodiscard]] CallTensor with_elements(CallTensor x, const StridedTensor& elements);

/// The elements in row-major order.
[[nodiscard]] std::vector<float> values_of(const StridedTensor& x);

/// A tensor of all calls together: [B, ...], or without the batch where it belongs to no sequence.
struct RunTensor {
  std::string name;
  Axis axis = Axis::tokens;
  bool batched = true;
  std::vector<std::int64_t> shape;           ///< the batch's extent included
  const std::vector<float>* data = nullptr;  ///< of an input; null: absent until it is carried
  std::string carried_as = {};               ///< of an output: the input of the next call that it becomes
  bool indices = false;                      ///< it holds places in another tensor, as slots of a pool
};

/// Calls of one kernel that follow each other, states carried from each to the next.
struct CallLoop {
  std::vector<RunTensor> inputs, outputs;
  std::vector<std::int64_t> offsets;  ///< of packed sequences; else empty
  KernelCall settings;                ///< of every call, but for tensors, tokens and chunk
  Path path;
  Index given = 0;        ///< tokens whose call is not made, since later calls receive their rows as inputs
  bool in_place = false;  ///< states are carried in place, and calls see parts of whole tensors
};

/// One call along a segment. Throws Unavailable where it did not run.
using OneCall = std::function<void(const Segment&, const KernelCall&)>;

/// Runs the calls and returns the outputs in their order, row-major, without the tokens that belong to no
/// sequence. Outputs are stale (guard.h) before they are written; inputs, padding, tokens of no sequence and
/// guard elements around every buffer are checked after it. Throws Unavailable, Trespass and Unrepeatable.
[[nodiscard]] std::vector<std::vector<float>> run_calls(const CallLoop& loop, const RunOptions& options,
                                                        const OneCall& call);

}  // namespace samestate
