#include "oracles/systems/last_axis.h"

#include <fmt/format.h>

#include <algorithm>

namespace samestate {
namespace {

/// Null if there is none of that name.
const TensorSpec* output_of(const Signature& signature, std::string_view output) {
  const auto found = std::ranges::find(signature.outputs, output, &TensorSpec::name);
  return found == signature.outputs.end() ? nullptr : &*found;
}

/// The axis with one size doubled; 0 if nothing is known about it.
Index doubled(const Operator& row, Call call, std::string_view size, std::string_view output) {
  call.parameters.at(size) *= 2;
  try {
    const Signature signature = row.signature(call);
    const TensorSpec* spec = output_of(signature, output);
    return spec == nullptr ? 0 : spec->columns();
  } catch (const Error&) {  // no such sizes
    return 0;
  }
}

}  // namespace

std::string LastAxis::text(Index column) const {
  if (width > 0) return fmt::format("head {}, channel {}", column / width, column % width);
  return fmt::format("{} {}", word, column);
}

Location LastAxis::place(Index row, Index column) const {
  Location at;
  at.token = row;
  at.channel = column;
  if (!tokens || column < 0) return at;
  if (width > 0) at.head = column / width, at.channel = column % width;
  if (word == "head") at.head = column, at.channel = -1;
  return at;
}

LastAxis last_axis(const Operator& row, const Call& call, std::string_view output) {
  LastAxis axis;
  const Signature signature = row.signature(call);
  const TensorSpec* spec = output_of(signature, output);
  if (spec == nullptr) return axis;
  const Index columns = spec->columns();
  axis.tokens = spec->axis == Axis::tokens && spec->shape.size() == 2;
  // Heads may be counted by a product of sizes: key heads, and value heads for each.
  Index heads = 1;
  for (const Parameter& p : row.parameters) {
    const bool of_heads = p.summary.find("heads") != p.summary.npos;
    if ((!of_heads && p.summary != "experts") || doubled(row, call, p.name, output) != 2 * columns) continue;
    if (of_heads) {
      heads *= call.at(p.name);
    } else if (columns == call.at(p.name)) {
      axis.word = "expert";
    }
  }
  if (heads < 2 || columns % heads != 0) return axis;
  if (columns == heads) axis.word = "head";
  // The channels of a head are a size of the row too; an output that also has heads of another kind (q, k and
  // v) has no such size.
  const bool wide = std::ranges::any_of(row.parameters, [&](const Parameter& p) {
    return call.at(p.name) == columns / heads && doubled(row, call, p.name, output) == 2 * columns &&
           p.summary.find("heads") == p.summary.npos;
  });
  if (axis.tokens && wide && axis.word == "column") axis.width = columns / heads;
  return axis;
}

}  // namespace samestate
