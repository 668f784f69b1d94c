#include "oracles/path.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/composed.h"
#include "oracles/bounds/recurrent.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "oracles/stretch.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// The error common to a row of q or k that the kernel normalises. Inputs on a 16-bit grid times a factor
/// within u of a power of two round back to that grid, all by the same relative amount: if the result is
/// rounded to such a format again, up to u is common to the row. In det the elements' own roundings, summed
/// by absolute value, already contain it.
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

/// The state that a part passes on is the composition of its map: for the following parts, the error of this
/// state replaces that of the part's own end state.
void hand_on(Bound& bound, const Sequence<double>& part, const StateError* carried, Index chunk,
             const Contract& contract, const Family& family, Mode mode, double norm_error) {
  const Sequence<double> maps = map_sequence(part);
  const Matrix<double> exact = family.recurrent(maps).state;
  ComposedState next = composed_state(part, maps, exact, bound.carry, carried, contract, family.structure(),
                                      mode, chunk, norm_error);
  bound.carry = std::move(next.error);
  bound.largest = std::max(bound.largest, next.largest);
  bound.nonlinearity = std::max(bound.nonlinearity, next.nonlinearity);
  bound.vacuous = bound.vacuous || next.vacuous;
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

/// Counter-based: the n-th draw of a seed.
std::uint64_t drawn(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t x = seed + 0x9E3779B97F4A7C15U * (n + 1);
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace

std::vector<Index> Ranks::cuts(Index tokens, Index chunk) const {
  if (count <= 1) return {};
  std::vector<Index> out{0};
  if (!drawn) {
    const Index unit = std::max<Index>(chunk, 1);
    const Index each = ((tokens + count - 1) / count + unit - 1) / unit * unit;
    for (Index r = 1; r < count; ++r) out.push_back(std::min(r * each, tokens));
  } else {
    for (Index r = 1; r < count; ++r) {
      // One cut in four coincides with an existing one, and leaves a rank without tokens.
      const std::uint64_t draw = samestate::drawn(seed, static_cast<std::uint64_t>(r));
      const bool again = draw % 4 == 0 && r > 1;
      out.push_back(again ? out.back()
                          : static_cast<Index>((draw >> 8U) % static_cast<std::uint64_t>(tokens + 1)));
    }
    std::sort(out.begin(), out.end());
  }
  out.push_back(tokens);
  return out;
}

Segment Ranks::call(Index tokens, Index chunk) const {
  Segment segment{tokens, chunk, false};
  if (chunk > 0)
    (heads > 0 ? segment.head_cuts : segment.cuts) = heads > 0 ? cuts(heads, 1) : cuts(tokens, chunk);
  return segment;
}

Path whole(Index tokens, Index chunk, const Ranks& ranks) { return {ranks.call(tokens, chunk)}; }

Path split(Index tokens, Index chunk, Index at, const Ranks& ranks) {
  return {whole(at, chunk, ranks).front(), whole(tokens - at, chunk, ranks).front()};
}

Path prefill_and_decode(Index tokens, Index chunk, Index prefill, const Ranks& ranks) {
  return {whole(prefill, chunk, ranks).front(), {tokens - prefill, 0, true}};
}

Path path_of_sequence(const Path& rows, const BatchShape& shape, Index n) {
  if (shape.offsets.empty()) return rows;
  const Index begin = shape.begin(n), end = shape.end(n);
  Segment of{end - begin, rows.front().chunk, false, {}, rows.front().head_cuts};
  for (const Index cut : rows.front().cuts) of.cuts.push_back(std::clamp(cut, begin, end) - begin);
  return {std::move(of)};
}

Path part_by_part(const Path& path) {
  Path out;
  for (const Segment& segment : path) {
    if (segment.cuts.empty()) {
      out.push_back(segment);
      continue;
    }
    for (std::size_t r = 0; r + 1 < segment.cuts.size(); ++r) {
      if (const Index tokens = segment.cuts[r + 1] - segment.cuts[r]; tokens > 0)
        out.push_back({tokens, segment.chunk, false});
    }
  }
  if (out.empty()) out.push_back({0, path.empty() ? 0 : path.front().chunk, false});
  return out;
}

Bound bound_of(const Sequence<double>& x, const Path& path, const Contract& contract, const Family& family,
               Mode mode, bool l2norm) {
  return bound_of_stretch(x, path, contract, family, mode, l2norm, nullptr);
}

Bound bound_of_stretch(const Sequence<double>& x, const Path& path, const Contract& contract,
                       const Family& family, Mode mode, bool l2norm, const StateError* carried_in) {
  const double norm_error = l2norm ? normalising_error(contract, mode, x.key_width()) : 0.0;
  Index total = 0;
  for (const Segment& segment : path) total += segment.tokens;
  if (total != x.tokens() || path.empty()) {
    throw Error("path of " + std::to_string(total) + " tokens on a sequence of " +
                std::to_string(x.tokens()));
  }
  if (path.size() == 1 && path[0].cuts.empty())
    return bound_of_segment(x, path[0], contract, family, mode, carried_in, norm_error);

  Bound all;
  Matrix<double> state = x.initial_state;
  Index begin = 0;
  bool first = true;
  for (const Segment& segment : path) {
    const Path parts = part_by_part({segment});
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Sequence<double> part = x.slice(begin, begin + parts[i].tokens, state);
      const StateError* const carried = first ? carried_in : &all.carry;
      Bound bound = bound_of_segment(part, parts[i], contract, family, mode, carried, norm_error);
      if (i + 1 < parts.size())
        hand_on(bound, part, carried, parts[i].chunk, contract, family, mode, norm_error);
      if (first) {
        all = std::move(bound);
      } else {
        append(all, std::move(bound));
      }
      first = false;
      const bool last = &segment == &path.back() && i + 1 == parts.size();
      if (!last) state = family.recurrent(part).state;
      begin += parts[i].tokens;
    }
  }
  return all;
}

}  // namespace samestate
