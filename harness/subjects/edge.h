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
#include "optimized/kernel_call.h"

/// The boundary between the judge's call and the subject's: copies in both directions, with the conversions
/// that a declaration names.
namespace samestate {

/// Returns the inputs that oracles read under the contract (docs/lookup/subjects.md, "The oracle reads what
/// the subject was given").
[[nodiscard]] Given given_of(const Conventions& conventions, const Contract& contract);

/// Why the conventions do not allow the call (limits_of), in words; empty if they do.
[[nodiscard]] std::string refusal_of(const Arguments& call, const Conventions& conventions);

/// If the subject sees a pool with one extra slot per request: the elements of that unused slot.
struct NullRow {
  std::int64_t first = 0, size = 0, step = 0, count = 0;  ///< step is the distance between requests' slots
};

/// A tensor of a call as the subject sees it.
struct EdgeTensor {
  std::string name;
  Dtype dtype = Dtype::fp32;
  std::vector<std::int64_t> shape = {}, stride = {};  ///< stride: that of the memory, in elements
  std::size_t region = 0;                             ///< the number of the memory region that holds it
  StridedTensor call =
      {};  ///< the judge's tensor with its axes in the subject's order; shape may have merged some. Zeros if
           ///< it has no data
  std::vector<std::int64_t> memory_stride = {};  ///< for the axes of `call`, in elements
  bool input = false, output = false;
  bool dense = false;  ///< without gaps in the call, and so without gaps for the subject, in its own order of
                       ///< axes
  std::vector<std::int64_t> whole_numbers = {};  ///< the values of an integer tensor
  std::int64_t begin = 0;                        ///< element of the memory at which those of `call` start
  NullRow nobodys = {};
};

/// The memory that one tensor, or a state that is updated in place, needs.
struct EdgeRegion {
  std::string name;
  bool only_read = false;  ///< the subject only reads it
  MemoryPlace place = {};
  std::vector<MemoryBlock> blocks = {};
};

/// Where a region is.
struct EdgePlace {
  std::byte* data = nullptr;  ///< its first element, as a pointer for the judge
  std::size_t offset = 0;     ///< the same place, as an offset for the subject
  /// For each block: the memory that holds it, and the memory around it that the judge fills and checks.
  std::vector<std::span<std::byte>> around = {};
};

/// One call on memory between guards.
class EdgeCall {
 public:
  /// For the recurrent family. Tensors keep the strides of the call unless axes are merged.
  EdgeCall(const Arguments& call, const Contract& contract, const Declaration& declaration);
  /// For named tensors. Those of a backward pass come in the formats of the forward call's.
  EdgeCall(const KernelCall& call, const Contract& contract, const Declaration& declaration);

  [[nodiscard]] const std::vector<EdgeRegion>& regions() const { return regions_; }
  /// The memory needed to place everything one after another if there are no pages to protect, as on a
  /// device.
  [[nodiscard]] std::size_t packed_bytes() const;
  [[nodiscard]] std::vector<EdgePlace> packed(std::span<std::byte> memory) const;

  /// The message for the call, on `memory` bytes.
  [[nodiscard]] std::string message(std::int64_t id, const std::string& kernel, std::size_t memory,
                                    std::span<const EdgePlace> places) const;

  /// Writes inputs, stale outputs and the memory around them; `places` has one entry per region.
  void write(std::span<const EdgePlace> places);
  /// Reads the outputs. Throws Trespass if anything else has changed.
  void read(std::span<const EdgePlace> places);

 private:
  void add(EdgeTensor tensor);
  /// The pool `x` with one extra slot per request.
  [[nodiscard]] EdgeTensor with_null_slot(EdgeTensor x) const;
  [[nodiscard]] float given_slot(float slot) const;
  void make_regions();
  [[nodiscard]] MemoryPlace place_of(const EdgeTensor& tensor) const;
  /// The position of a region's byte in the copy of what was written.
  [[nodiscard]] std::size_t in_copy(std::size_t region, std::size_t byte) const;
  void check_region(std::size_t region, const EdgePlace& place) const;
  /// Writes the elements of the call's tensor, converted by `converted` (null: unchanged) and to its dtype.
  template <class Converted>
  void put(const EdgeTensor& tensor, std::byte* base, Converted&& converted);

  std::vector<EdgeTensor> tensors_;
  std::vector<EdgeRegion> regions_;
  std::vector<std::byte> written_;  ///< everything that was written, block by block
  std::vector<std::vector<std::size_t>>
      begins_;  ///< where the blocks of each region start in it, by their first elements
  Given given_;
  std::string head_;  ///< the settings of the message, as JSON without the closing brace
  float scale_ = 1.0F;
  bool keeps_strides_ = false;
  Conventions::NullSlot null_slot_ = Conventions::NullSlot::minus_one;
  std::int64_t slots_ = 0;                        ///< slots of a pool as the judge counts them
  std::vector<std::int64_t> without_state_ = {};  ///< requests whose outputs are not judged
};

}  // namespace samestate
