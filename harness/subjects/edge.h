#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/guarded_memory.h"
#include "harness/run/guarded_tensor.h"
#include "harness/subjects/declaration.h"
#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

/// Between the judge's call and the subject's: both ways, with the conversions that a declaration names.
namespace samestate {

/// What oracles read, given the contract (docs/lookup/subjects.md, "The oracle reads what the subject was given").
[[nodiscard]] Given given_of(const Conventions& conventions, const Contract& contract);

/// Why the conventions do not allow for the call (limits_of), in words; empty: they do.
[[nodiscard]] std::string refusal_of(const Arguments& call, const Conventions& conventions);

/// Of a pool that the subject sees with one slot more a request: elements of that slot, which is nobody's.
struct NullRow {
  std::int64_t first = 0, size = 0, step = 0, count = 0;  ///< step: from one request's to the next
};

/// A tensor of a call as the subject sees it.
struct EdgeTensor {
  std::string name;
  Dtype dtype = Dtype::fp32;
  std::vector<std::int64_t> shape = {}, stride = {};  ///< stride: of the memory, in elements
  std::size_t region = 0;                             ///< number of the memory that it lies in
  StridedTensor call =
      {};  ///< the judge's, its axes in the subject's order; shape may have merged some. Without data: zeros
  std::vector<std::int64_t> memory_stride = {};  ///< of the axes of `call`, in elements
  bool input = false, output = false;
  bool dense = false;  ///< without gaps in the call: then for the subject too, in its own order of axes
  std::vector<std::int64_t> whole_numbers = {};  ///< of an integer tensor: its values
  std::int64_t begin = 0;                        ///< element of the memory at which those of `call` begin
  NullRow nobodys = {};
};

/// What one tensor asks of memory, or a state that is updated in place.
struct EdgeRegion {
  std::string name;
  bool only_read = false;  ///< by the subject
  MemoryPlace place = {};
  std::vector<MemoryBlock> blocks = {};
};

/// Where a region lies.
struct EdgePlace {
  std::byte* data = nullptr;  ///< its first element, for the judge
  std::size_t offset = 0;     ///< the same place, for the subject
  /// By block: the memory that holds it, and around it what is the judge's to fill and to check.
  std::vector<std::span<std::byte>> around = {};
};

/// One call on memory between guards.
class EdgeCall {
 public:
  /// Of the recurrent family; `strides`: tensors keep the strides of the call where no axes are merged.
  EdgeCall(const Arguments& call, const Contract& contract, const Declaration& declaration);
  /// Of named tensors.
  EdgeCall(const OperatorArguments& call, const Contract& contract, const Declaration& declaration);

  [[nodiscard]] const std::vector<EdgeRegion>& regions() const { return regions_; }
  /// One behind the other in memory of packed_bytes(), where there are no pages to be had, as on a device.
  [[nodiscard]] std::size_t packed_bytes() const;
  [[nodiscard]] std::vector<EdgePlace> packed(std::span<std::byte> memory) const;

  /// The message of the call, on `memory` bytes.
  [[nodiscard]] std::string message(std::int64_t id, const std::string& kernel, std::size_t memory,
                                    std::span<const EdgePlace> places) const;

  /// Writes inputs, stale outputs and what stands around them; `places`: one a region.
  void write(std::span<const EdgePlace> places);
  /// Reads the outputs. Throws Trespass where anything else has changed.
  void read(std::span<const EdgePlace> places);

 private:
  void add(EdgeTensor tensor);
  /// `x`, the pool, with a slot more a request.
  [[nodiscard]] EdgeTensor with_null_slot(EdgeTensor x) const;
  [[nodiscard]] float given_slot(float slot) const;
  void make_regions();
  [[nodiscard]] MemoryPlace place_of(const EdgeTensor& tensor) const;
  /// Where the copy of what was written has that byte of a region.
  [[nodiscard]] std::size_t in_copy(std::size_t region, std::size_t byte) const;
  void check_region(std::size_t region, const EdgePlace& place) const;
  /// The elements of the call's tensor, each as `converted` (null: as it is) and its dtype make it.
  template <class Converted>
  void put(const EdgeTensor& tensor, std::byte* base, Converted&& converted);

  std::vector<EdgeTensor> tensors_;
  std::vector<EdgeRegion> regions_;
  std::vector<std::byte> written_;  ///< all that was written, block by block
  std::vector<std::vector<std::size_t>>
      begins_;  ///< where in it the blocks of each region begin, their first elements
  Given given_;
  std::string head_;  ///< of the message: settings, as JSON without the closing brace
  float scale_ = 1.0F;
  bool keeps_strides_ = false;
  Conventions::NullSlot null_slot_ = Conventions::NullSlot::minus_one;
  std::int64_t slots_ = 0;                        ///< of a pool, as the judge has it
  std::vector<std::int64_t> without_state_ = {};  ///< requests whose outputs are not the subject's to say
};

}  // namespace samestate
