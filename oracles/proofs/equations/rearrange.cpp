#include "oracles/proofs/equations/rearrange.h"

#include <sstream>

#include "oracles/proofs/equations/computation.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Group = std::vector<std::string>;

/// One side of a pattern: a group an axis of the tensor, several names where brackets merge them.
std::vector<Group> side_of(std::string_view side) {
  std::string spaced;
  for (const char c : side) {
    spaced += c == '(' || c == ')' ? std::string{' ', c, ' '} : std::string{c};
  }
  std::istringstream words(spaced);
  std::vector<Group> groups;
  bool open = false;
  for (std::string word; words >> word;) {
    if (word == "(" || word == ")") {
      if (open == (word == "("))
        throw Error("rearrangement '" + std::string(side) + "': brackets do not match");
      open = word == "(";
      if (open) groups.emplace_back();
    } else if (open) {
      groups.back().push_back(word);
    } else {
      groups.push_back({word});
    }
  }
  if (open) throw Error("rearrangement '" + std::string(side) + "': a bracket is not closed");
  return groups;
}

}  // namespace

Rearrangement::Rearrangement(std::string_view pattern, std::vector<std::int64_t> shape,
                             std::map<std::string, std::int64_t> sizes)
    : sizes_(std::move(sizes)) {
  const std::size_t arrow = pattern.find("->");
  if (arrow == pattern.npos) throw Error("rearrangement '" + std::string(pattern) + "': no ->");
  const std::vector<Group> left = side_of(pattern.substr(0, arrow));
  const std::vector<Group> right = side_of(pattern.substr(arrow + 2));
  const auto misfit = [&] {
    return Error("rearrangement '" + std::string(pattern) + "': a tensor " + text_of(shape) +
                 " does not fit; name the sizes of its axes");
  };
  if (left.size() != shape.size()) throw misfit();
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::int64_t known = 1;
    std::string unknown;
    for (const std::string& axis : left[i]) {
      from_.push_back(axis);
      if (sizes_.contains(axis)) {
        known *= sizes_.at(axis);
      } else if (unknown.empty()) {
        unknown = axis;
      } else {
        throw misfit();
      }
    }
    if (known < 1 || shape[i] % known != 0 || (unknown.empty() && known != shape[i])) throw misfit();
    if (!unknown.empty()) sizes_[unknown] = shape[i] / known;
  }
  for (const Group& group : right) {
    std::int64_t extent = 1;
    for (const std::string& axis : group) {
      if (!sizes_.contains(axis)) throw misfit();
      to_.push_back(axis);
      extent *= sizes_.at(axis);
    }
    shape_.push_back(extent);
  }
}

std::int64_t Rearrangement::source(std::int64_t index) const {
  std::map<std::string, std::int64_t> at;
  for (std::size_t i = to_.size(); i-- > 0;) {
    const std::int64_t size = sizes_.at(to_[i]);
    at[to_[i]] = index % size;
    index /= size;
  }
  std::int64_t result = 0;
  for (const std::string& axis : from_) result = result * sizes_.at(axis) + at[axis];
  return result;
}

std::vector<std::int64_t> Rearrangement::sources() const {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape_) size *= extent;
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(source(i));
  return all;
}

std::vector<std::int64_t> einsum_shape(std::string_view equation,
                                       const std::vector<std::vector<std::int64_t>>& shapes) {
  const auto misfit = [&] { return Error("einsum '" + std::string(equation) + "': the shapes do not fit"); };
  const std::size_t arrow = equation.find("->");
  if (arrow == equation.npos) throw misfit();
  std::map<char, std::int64_t> extents;
  std::size_t tensor = 0;
  std::size_t axis = 0;
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',') {
      if (tensor >= shapes.size() || axis != shapes[tensor].size()) throw misfit();
      ++tensor;
      axis = 0;
      continue;
    }
    if (tensor >= shapes.size() || axis >= shapes[tensor].size()) throw misfit();
    const std::int64_t extent = shapes[tensor][axis++];
    if (extents.emplace(c, extent).first->second != extent) throw misfit();
  }
  if (tensor + 1 != shapes.size() || axis != shapes[tensor].size()) throw misfit();
  std::vector<std::int64_t> result;
  for (const char c : equation.substr(arrow + 2)) {
    if (!extents.contains(c)) throw misfit();
    result.push_back(extents.at(c));
  }
  return result;
}

std::vector<std::int64_t> expanded_shape(const std::vector<std::int64_t>& shape,
                                         const std::vector<std::int64_t>& sizes) {
  const auto misfit = [&] {
    return Error("expand " + text_of(shape) + " to " + text_of(sizes) + ": no such expansion");
  };
  if (sizes.size() < shape.size()) throw misfit();
  const std::size_t leading = sizes.size() - shape.size();
  std::vector<std::int64_t> result = sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i < leading) {
      if (sizes[i] < 0) throw misfit();
      continue;
    }
    const std::int64_t extent = shape[i - leading];
    if (sizes[i] < 0) result[i] = extent;
    if (extent != 1 && result[i] != extent) throw misfit();
  }
  return result;
}

}  // namespace samestate
