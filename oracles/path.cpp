#include "oracles/path.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/recurrent.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Error common to a row of q or k that the kernel normalises. Inputs on a 16-bit grid times a factor within
/// u of a power of two round back to that grid, all by the same relative amount: where the result is rounded
/// to such a format again, up to u is common to the row. In det the elements' own roundings, summed by
/// absolute value, hold it already.
double normalising_error(const Contract& contract, Mode mode, Index key_width) {
  const double factor = l2norm_error(mode, key_width);
  const bool grid = contract.qk == Format::bf16 || contract.qk == Format::fp16;
  return mode == Mode::det || !grid ? factor
                                    : std::hypot(factor, unit_roundoff(contract.qk) / std::sqrt(3.0));
}

Bound bound_of_segment(const Sequence<double>& x, const Segment& segment, const Contract& contract,
                       const Family& family, Mode mode, const StateError* carried, double norm_error) {
  if (segment.chunk > 0) {
    return bound_chunked(x, contract, family.structure(), mode, segment.chunk, carried, norm_error);
  }
  return bound_recurrent(x, recurrent_contract(contract), family.structure(), mode, carried, norm_error);
}

void append(Vector<double>& to, const Vector<double>& from) {
  Vector<double> joined(to.size() + from.size());
  joined << to, from;
  to = std::move(joined);
}

void append(Bound& to, Bound from) {
  append(to.before_output, from.before_output);
  append(to.coherent, from.coherent);
  append(to.output_rounding, from.output_rounding);
  append(to.rms, from.rms);
  Matrix<double> o(to.o.rows() + from.o.rows(), from.o.cols());
  o << to.o, from.o;
  to.o = std::move(o);
  to.carry = std::move(from.carry);
  to.state = from.state;
  to.state_rows = std::move(from.state_rows);
  to.largest = std::max(to.largest, from.largest);
  to.nonlinearity = std::max(to.nonlinearity, from.nonlinearity);
  to.vacuous = to.vacuous || from.vacuous;
}

}  // namespace

Path whole(Index tokens, Index chunk) { return {{tokens, chunk, false}}; }

Path split(Index tokens, Index chunk, Index at) { return {{at, chunk, false}, {tokens - at, chunk, false}}; }

Path prefill_and_decode(Index tokens, Index chunk, Index prefill) {
  return {{prefill, chunk, false}, {tokens - prefill, 0, true}};
}

Bound bound_of(const Sequence<double>& x, const Path& path, const Contract& contract, const Family& family,
               Mode mode, bool l2norm) {
  const double norm_error = l2norm ? normalising_error(contract, mode, x.key_width()) : 0.0;
  Index total = 0;
  for (const Segment& segment : path) total += segment.tokens;
  if (total != x.tokens() || path.empty()) {
    throw Error("path of " + std::to_string(total) + " tokens on a sequence of " +
                std::to_string(x.tokens()));
  }
  if (path.size() == 1) return bound_of_segment(x, path[0], contract, family, mode, nullptr, norm_error);

  Bound all;
  Matrix<double> state = x.initial_state;
  Index begin = 0;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Sequence<double> part = x.slice(begin, begin + path[i].tokens, state);
    Bound bound =
        bound_of_segment(part, path[i], contract, family, mode, i == 0 ? nullptr : &all.carry, norm_error);
    if (i == 0) {
      all = std::move(bound);
    } else {
      append(all, std::move(bound));
    }
    state = family.recurrent(part).state;
    begin += path[i].tokens;
  }
  return all;
}

}  // namespace samestate
