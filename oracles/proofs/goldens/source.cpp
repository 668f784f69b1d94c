#include "oracles/proofs/goldens/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/error.h"

namespace samestate {
namespace {

Matrix<double> as_matrix(const Tensor& t, Index begin, Index count, Index columns) {
  return Eigen::Map<const Matrix<double>>(t.values.data() + begin, columns > 0 ? count / columns : 0,
                                          columns);
}

}  // namespace

Matrix<double> GoldenSource::matrix(std::string_view name) const {
  const Tensor& t = tensor(name);
  if (t.rank() == 0)
    throw Error(
        fmt::format("{}: tensor {} is a single value where a matrix is needed", file_name, path(name)));
  return as_matrix(t, 0, t.size(), t.shape.back());
}

Matrix<double> GoldenSource::matrix(std::string_view name, Index index) const {
  const Tensor& t = tensor(name);
  if (t.rank() < 2 || index < 0 || index >= t.shape[0]) {
    throw Error(fmt::format("{}: tensor {} of shape [{}] has no row {}", file_name, path(name),
                            fmt::join(t.shape, ", "), index));
  }
  const Index size = t.size() / t.shape[0];
  return as_matrix(t, index * size, size, t.shape.back());
}

Vector<double> GoldenSource::vector(std::string_view name) const {
  const Tensor& t = tensor(name);
  if (t.rank() != 1)
    throw Error(
        fmt::format("{}: tensor {} has {} dimensions where 1 is needed", file_name, path(name), t.rank()));
  return Eigen::Map<const Vector<double>>(t.values.data(), t.size());
}

double GoldenSource::number(std::string_view name) const {
  const Tensor& t = tensor(name);
  if (t.size() != 1)
    throw Error(
        fmt::format("{}: tensor {} holds {} values where 1 is needed", file_name, path(name), t.size()));
  return t.values.front();
}

Index GoldenSource::integer(std::string_view name) const {
  const double value = number(name);
  if (!(value >= 0 && value <= 0x1p53 && value == std::floor(value))) {
    throw Error(fmt::format("{}: tensor {} holds {} where a non-negative integer is needed", file_name,
                            path(name), value));
  }
  return static_cast<Index>(value);
}

void GoldenSource::require_shape(std::string_view name, const std::vector<Index>& shape) const {
  const Tensor& t = tensor(name);
  const bool fits = t.shape.size() == shape.size() &&
                    std::equal(shape.begin(), shape.end(), t.shape.begin(),
                               [](Index wanted, std::int64_t is) { return wanted == -1 || wanted == is; });
  if (!fits) {
    throw Error(fmt::format("{}: tensor {} has shape [{}], needed [{}]", file_name, path(name),
                            fmt::join(t.shape, ", "), fmt::join(shape, ", ")));
  }
}

void GoldenSource::check(std::string_view name, const std::string& form, const Matrix<double>& mine) const {
  const Tensor& t = tensor(name);
  if (mine.size() != t.size()) {
    throw Error(fmt::format("{}: tensor {} holds {} values where the inputs give {}", file_name, path(name),
                            t.size(), mine.size()));
  }
  double difference = 0.0;
  double size = 0.0;
  for (Index i = 0; i < mine.size(); ++i) {
    const double golden = t.values[static_cast<std::size_t>(i)];
    const double d = std::abs(mine.data()[i] - golden);
    difference = d <= std::numeric_limits<double>::max() ? std::max(difference, d)
                                                         : std::numeric_limits<double>::infinity();
    size = std::max(size, std::abs(golden));
  }
  const double error = size > 0 ? difference / size : difference;
  report.checks.push_back(
      {file_name, group, std::string(name), form, error, kGoldenLimit, error <= kGoldenLimit});
}

void GoldenSource::check(std::string_view name, const std::string& form, double mine) const {
  check(name, form, Matrix<double>::Constant(1, 1, mine));
}

}  // namespace samestate
