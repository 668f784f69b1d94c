#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/law_trace.h"
#include "oracles/batch.h"
#include "oracles/judge.h"

namespace samestate {

/// Runs the kernel under test on a batch along a path; a packed batch takes a path of one segment. Throws
/// where the kernel does not support the call.
using Runner = std::function<Outputs(const Batch&, const Path&)>;

class TensorSystem;

/// The kernel and the data on which a law of the recurrent family is tried (harness/cases/laws.h).
struct LawSubject {
  const Batch& batch;
  const Family& family;
  const Contract& contract;
  Index chunk = 0;  ///< 0 in the recurrent form
  Runner run;
  LawTrace* trace = nullptr;  ///< where to keep what was compared
  Ranks ranks = {};           ///< the ranks of every call with chunks
  bool deterministic = true;  ///< KernelRow::deterministic

  /// Returns the path that takes `tokens` tokens in one call.
  [[nodiscard]] Path whole(Index tokens) const { return samestate::whole(tokens, chunk, ranks); }
};

/// A case of named tensors with the runs that a law needs.
struct TensorSubject {
  const Resolved& r;
  const TensorSystem& system;
  const std::vector<CaseTensor>& inputs;
  std::string_view native;  ///< form of the kernel
  /// The kernel's outputs by sequence, its calls ending at `cuts`, the last excepted.
  std::function<std::vector<Tensors<double>>(const Resolved& sized, const std::vector<CaseTensor>& inputs,
                                             const std::vector<Index>& cuts)>
      run_as;                       ///< with the batch and tokens of `sized`
  TensorLawTrace* trace = nullptr;  ///< where to keep what was compared
  /// If `samples` is above 0, tolerances come from that many drawn roundings, from number `first_sample` on;
  /// otherwise they are the running errors.
  int first_sample = 0, samples = 0;
  bool deterministic = true;  ///< KernelRow::deterministic

  [[nodiscard]] std::vector<Tensors<double>> run(const std::vector<CaseTensor>& of,
                                                 const std::vector<Index>& cuts) const {
    return run_as(r, of, cuts);
  }
};

}  // namespace samestate
