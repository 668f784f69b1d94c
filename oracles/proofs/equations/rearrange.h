#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A rearrangement of axes as the documents write it: 'b l (h d) -> h b l d'. An axis that appears only on
/// the right is a repetition; brackets merge axes, with the first one slowest. Shapes and the index map
/// follow from it.
class Rearrangement {
 public:
  /// `sizes` gives the axes that the shape does not determine. Throws Error for a malformed pattern, for a
  /// shape that does not fit and for an axis of unknown size.
  Rearrangement(std::string_view pattern, std::vector<std::int64_t> shape,
                std::map<std::string, std::int64_t> sizes = {});

  /// The extents of the result.
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  /// The row-major index in the input of the element at this row-major index of the result.
  [[nodiscard]] std::int64_t source(std::int64_t index) const;
  /// source() for every element.
  [[nodiscard]] std::vector<std::int64_t> sources() const;

 private:
  std::vector<std::string> from_, to_;  ///< axes, with brackets opened
  std::map<std::string, std::int64_t> sizes_;
  std::vector<std::int64_t> shape_;
};

/// The extents of torch.einsum over these shapes: "eblhd,eblh->blhd". Throws Error if extents disagree.
[[nodiscard]] std::vector<std::int64_t> einsum_shape(std::string_view equation,
                                                     const std::vector<std::vector<std::int64_t>>& shapes);

/// The extents of torch.Tensor.expand: sizes align at the last axis, and -1 keeps an extent (it is invalid
/// for a new leading axis). Throws Error if there is no such expansion.
[[nodiscard]] std::vector<std::int64_t> expanded_shape(const std::vector<std::int64_t>& shape,
                                                       const std::vector<std::int64_t>& sizes);

}  // namespace samestate
