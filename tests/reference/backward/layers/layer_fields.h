#pragma once

#include <utility>

#include "tests/reference/backward/gradient_check.h"

/// Weights and caches of layers as lists of tensors. A list of fields is a generic lambda (object, visit) that
/// visits the object's matrices and vectors in order; for an object without values their shapes count.
namespace samestate::test {

/// The limit of a layer in float64, where a gradient passes some ten products and norms; measured up to 2.6e-15.
inline constexpr double kLayerResidual = 3e-15;

/// Reads tensors into fields, from a place in a list on.
template <class Scalar>
class FieldReader {
 public:
  explicit FieldReader(const Tensors<Scalar>& from, std::size_t at = 0) : from_(from), at_(at) {}
  void operator()(Matrix<Scalar>& field) { field = from_.at(at_++); }
  void operator()(Vector<Scalar>& field) { field = from_.at(at_++).col(0); }
  void operator()(std::vector<Matrix<Scalar>>& fields) {
    for (Matrix<Scalar>& field : fields) (*this)(field);
  }
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  const Tensors<Scalar>& from_;
  std::size_t at_;
};

/// Appends fields to a list of tensors.
template <class Scalar>
class FieldWriter {
 public:
  explicit FieldWriter(Tensors<Scalar>& to) : to_(to) {}
  void operator()(const Matrix<Scalar>& field) { to_.push_back(field); }
  void operator()(const Vector<Scalar>& field) { to_.emplace_back(field); }
  void operator()(const std::vector<Matrix<Scalar>>& fields) {
    for (const Matrix<Scalar>& field : fields) (*this)(field);
  }

 private:
  Tensors<Scalar>& to_;
};

/// `backward` on cotangents of which tensor `which` is set to 0.
template <class Backward>
[[nodiscard]] auto without_cotangent(Backward backward, std::size_t which) {
  return [=](const auto& x, const auto& d) {
    auto cut = d;
    cut.at(which).setZero();
    return backward(x, cut);
  };
}

}  // namespace samestate::test
