#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "harness/cases/system.h"
#include "harness/run/guarded_memory.h"
#include "optimized/kernel_call.h"
#include "reference/contract.h"

/// Calls of a kernel whose row asks for tensors in the contract's dtypes (CallKernel::contract_dtypes): the judge's tensors are
/// fp32, and hold what those formats hold.
namespace samestate {

/// The dtype of each tensor of a system under a contract.
class ContractDtypes {
 public:
  explicit ContractDtypes(const System& system);

  /// States are of the contract's format of states, other outputs of tokens of that of its outputs, other inputs of that which its
  /// oracle reads (input_format); fp32 where that is none of 16 bits, and for taps.
  [[nodiscard]] Dtype of(const CallTensor& tensor, bool output, const Contract& contract) const;

 private:
  std::map<std::string, TensorSpec, std::less<>> inputs_, outputs_;
};

/// One call with such tensors, those of 16 bits in guarded memory of their own, with the strides of the judge's.
class ContractCall {
 public:
  /// Throws Unavailable for an input that its format does not hold.
  ContractCall(const KernelCall& call, const Contract& contract, const ContractDtypes& dtypes);

  [[nodiscard]] const KernelCall& call() const { return call_; }
  /// Fills outputs with what was there before a call.
  void spoil();
  /// Copies the kernel's results into the tensors of the judge's call. Throws Trespass if it wrote outside of
  /// them.
  void give_back();

 private:
  /// A tensor of 16 bits; an output may lie on an input.
  struct Narrow {
    CallTensor of;  ///< the judge's
    Dtype dtype;
    GuardedMemory memory;
    bool input, output;
    std::vector<std::byte> before = {};  ///< of all its pages, block by block
  };
  [[nodiscard]] CallTensor narrowed(const CallTensor& x, Dtype dtype, bool output);
  void check_around(Narrow& x) const;

  KernelCall call_;
  std::deque<Narrow> tensors_;
};

}  // namespace samestate
