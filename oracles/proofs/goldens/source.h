#pragma once

#include <string>
#include <string_view>

#include "fixtures/safetensors.h"
#include "oracles/proofs/goldens/goldens.h"
#include "reference/sequence.h"

namespace samestate {

/// One group of one golden file, and the report that its checks are added to. A group NAME.backward has cotangents d.OUTPUT
/// and gradients d.INPUT; its inputs and weights are those of the group NAME.
struct GoldenSource {
  const Safetensors& file;
  std::string file_name, group;
  GoldenReport& report;
  const Safetensors* forward_file = nullptr;  ///< of a group NAME.backward: the file that has the group NAME
  std::string forward_group = {};             ///< NAME

  [[nodiscard]] std::string path(std::string_view name) const { return group + "/" + std::string(name); }
  [[nodiscard]] bool has(std::string_view name) const {
    return file.contains(path(name)) || is_inherited(name);
  }
  [[nodiscard]] const Tensor& tensor(std::string_view name) const {
    return is_inherited(name) ? forward_file->tensor(forward_group + "/" + std::string(name))
                              : file.tensor(path(name));
  }

  /// The tensor as a matrix, with all but the last dimension flattened. Throws Error for a scalar.
  [[nodiscard]] Matrix<double> matrix(std::string_view name) const;
  /// Row `index` of the first dimension of a tensor of rank >= 2, with the rest flattened as in `matrix`.
  /// Throws Error if there is no such row.
  [[nodiscard]] Matrix<double> matrix(std::string_view name, Index index) const;
  /// A one-dimensional tensor. Throws Error for another rank.
  [[nodiscard]] Vector<double> vector(std::string_view name) const;
  /// A single value, and a single value that must be a non-negative integer. Throw Error otherwise.
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] Index integer(std::string_view name) const;
  /// Throws Error, with both shapes, unless the tensor has this shape (-1 accepts any extent).
  void require_shape(std::string_view name, const std::vector<Index>& shape) const;

  /// Compares `mine` (laid out as `matrix(tensor)`) with the golden tensor and adds the check to the report.
  /// Throws Error if the sizes differ.
  void check(std::string_view tensor, const std::string& form, const Matrix<double>& mine) const;
  /// The same for a single value.
  void check(std::string_view tensor, const std::string& form, double mine) const;

 private:
  [[nodiscard]] bool is_inherited(std::string_view name) const {
    return forward_file != nullptr && !file.contains(path(name)) &&
           forward_file->contains(forward_group + "/" + std::string(name));
  }
};

}  // namespace samestate
