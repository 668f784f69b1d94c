#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "harness/explain/explain_head.h"
#include "harness/explain/explain_parts.h"
#include "harness/explain/explain_tensors.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

using TensorChange = TensorLawComparison::Change;

constexpr const char* kOfPool =
    "a request reads or writes a row of the pool that is not its slot's, or its result depends on the slot";

/// Says what a call left in an element without an owner.
const char* written(float given, float left) {
  const auto holds = [&](Format format) { return left == round_to(given, format); };
  if (given == 0.0F && left == 0.0F) return "0 where -0 was, as adding zero does";
  if (left == 0.0F && std::fpclassify(given) == FP_SUBNORMAL) return "zeros where subnormal numbers were";
  if (left == 0.0F) return "zeros";
  if (holds(Format::bf16)) return "its numbers rounded to bf16";
  if (holds(Format::fp16)) return "its numbers rounded to fp16";
  return "other numbers";
}

/// Says whether calls wrote into rows that no request owns, and what.
std::string of_nobodys_rows(const TensorLawTrace& trace) {
  std::vector<std::string> what;
  for (const TensorLawComparison& comparison : trace) {
    if (comparison.first != kRowsGiven) continue;
    for (const TensorLawPair& pair : comparison.pairs) {
      const Matrix<double> allowed = pair.first.tolerance + pair.second.tolerance;
      for (Index i = 0; i < pair.rows; ++i) {
        for (Index j = 0; j < allowed.cols(); ++j) {
          const auto x = static_cast<float>(pair.first.values(i, j));
          const auto y = static_cast<float>(pair.second.values(i, j));
          if (std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y)) continue;
          if (x != y && std::abs(x - y) <= allowed(i, j)) continue;
          std::string now = written(x, y);
          if (std::ranges::find(what, now) == what.end()) what.push_back(std::move(now));
        }
      }
    }
  }
  if (what.empty()) return kOfPool;
  return fmt::format("writes rows of the pool that no sequence owns (none is its slot's): {}",
                     fmt::join(what, ", "));
}

/// Sets elements that are not finite in either run to zero, since they do not differ; returns their number.
Index without_shared_gaps(TensorLawPair& pair) {
  Index count = 0;
  for (Index i = 0; i < pair.rows; ++i) {
    for (Index j = 0; j < pair.first.values.cols(); ++j) {
      double& x = pair.first.values(i, j);
      double& y = pair.second.values(i, j);
      if (std::isfinite(x) || std::isfinite(y)) continue;
      x = y = 0.0;
      ++count;
    }
  }
  return count;
}

/// True for the name that a law gives to rows of heads whose columns are tokens: "d.k along k", "d.g by head".
bool is_by_head(std::string_view name) {
  return name.find(" along ") != name.npos || name.find(" by ") != name.npos;
}

/// An output of a sequence in which two runs differ.
struct Parting {
  const TensorLawPair* pair = nullptr;
  TensorDifference of;  ///< how the second run differs from the first, in the rows that are compared
  Index tokens = 0;     ///< number of tokens to which its rows belong; 0 for none
  bool first_wrong = false, second_wrong = false;  ///< in comparison with the equations

  [[nodiscard]] Index token_of(Index row) const { return row / (pair->first.values.rows() / tokens); }
};

/// A comparison, and where its runs differ.
struct Parted {
  const TensorLawComparison* comparison = nullptr;
  std::vector<Parting> outputs;
  std::set<Index> tokens;  ///< tokens that differ, in any output and sequence
  double worst = 0.0;
  Index neither = 0;  ///< elements that are finite in neither run

  /// A difference by token is more telling than one in the final state.
  [[nodiscard]] bool less_than(const Parted& other) const {
    return tokens.empty() != other.tokens.empty() ? tokens.empty() : worst < other.worst;
  }
  [[nodiscard]] const Parting& largest() const {
    return *std::max_element(outputs.begin(), outputs.end(), [](const Parting& x, const Parting& y) {
      return (x.tokens > 0) != (y.tokens > 0) ? y.tokens > 0 : x.of.worst < y.of.worst;
    });
  }
};

bool side_is_wrong(const TensorLawSide& side) {
  return difference_of({}, 0, side.exact, side.tolerance, side.values).wrong > 0;
}

Parted parted(const TensorSystem& system, const Case& c, const Call& call,
              const TensorLawComparison& comparison) {
  const Signature signature = system.signature(c);
  Parted out;
  out.comparison = &comparison;
  for (const TensorLawPair& pair : comparison.pairs) {
    const auto rows = [&](const Matrix<double>& x) -> Matrix<double> { return x.topRows(pair.rows); };
    Parting p;
    TensorLawPair told = pair;
    out.neither += without_shared_gaps(told);
    p.of = difference_of(pair.output, pair.sequence, rows(told.first.values),
                         rows(pair.first.tolerance + pair.second.tolerance), rows(told.second.values));
    if (p.of.wrong == 0) continue;
    p.pair = &pair;
    p.of.axis = last_axis(system.row, call, pair.output);
    const auto spec = std::find_if(signature.outputs.begin(), signature.outputs.end(),
                                   [&](const TensorSpec& row) { return row.name == pair.output; });
    if (spec == signature.outputs.end()) {
      if (is_by_head(pair.output)) p.of.axis.word = "token";
    } else if (spec->axis == Axis::tokens) {
      p.tokens = c.T;
    }
    p.first_wrong = side_is_wrong(pair.first);
    p.second_wrong = side_is_wrong(pair.second);
    if (p.tokens > 0) {
      for (const Index row : p.of.rows) out.tokens.insert(p.token_of(row));
    }
    out.worst = std::max(out.worst, p.of.worst);
    out.outputs.push_back(std::move(p));
  }
  return out;
}

std::string place_text(const Parting& p, Index row) {
  return fmt::format("{}: sequence {}, {}", p.of.name, p.of.sequence,
                     row_text(row, p.pair->first.values.rows(), p.tokens));
}

std::set<Index> places(const std::vector<Parted>& all, bool differing) {
  std::set<Index> out;
  for (const Parted& x : all) {
    if (!x.outputs.empty() == differing) out.insert(x.comparison->place);
  }
  return out;
}

void say_compared(Explanation& out, const std::vector<Parted>& all, const Parted& most) {
  out.compared = {"first:  " + most.comparison->first, "second: " + most.comparison->second};
  if (all.size() > 1) {
    const std::set<Index> differ = places(all, true);
    const std::set<Index> agree = places(all, false);
    const auto differing =
        std::count_if(all.begin(), all.end(), [](const Parted& x) { return !x.outputs.empty(); });
    std::string text = fmt::format("{} of {} such comparisons differ; this one most", differing, all.size());
    if (most.comparison->place >= 0) {
      text += fmt::format(" (at token {}; {})", ranges_text({differ.begin(), differ.end()}),
                          agree.empty() ? "at none do they agree"
                                        : "they agree at " + ranges_text({agree.begin(), agree.end()}));
    }
    out.compared.push_back(std::move(text));
  }
  bool first = false;
  bool second = false;
  for (const Parting& p : most.outputs) first = first || p.first_wrong, second = second || p.second_wrong;
  out.compared.push_back(fmt::format("against the equations, the first is {} and the second is {}",
                                     first ? "wrong" : "right", second ? "wrong" : "right"));
}

/// Says where they first differ, and shows the values around the worst element.
void say_differs(Explanation& out, const Parted& most) {
  for (const Parting& p : most.outputs) {
    const Index row = p.of.rows.front();
    out.differs.push_back(
        fmt::format("{} of sequence {}: {} of {} elements in {} row(s): {}; they part at {}, {}", p.of.name,
                    p.of.sequence, p.of.wrong, p.pair->rows * p.pair->first.values.cols(), p.of.rows.size(),
                    ranges_text(p.of.rows), row_text(row, p.pair->first.values.rows(), p.tokens),
                    p.of.axis.text(p.of.first_column)));
  }
  const Parting& p = most.largest();
  const TensorLawPair& pair = *p.pair;
  const Index first = p.of.rows.front();
  if (first != p.of.worst_row) {
    out.values.push_back({fmt::format("{}, {}", place_text(p, first), p.of.axis.text(p.of.first_column)),
                          pair.first.values(first, p.of.first_column),
                          pair.second.values(first, p.of.first_column)});
  }
  const Index row = p.of.worst_row;
  show_row(out, place_text(p, row), p.of.axis, pair.first.values, pair.second.values, row);
  const Index column = worst_column(pair.first.values, pair.second.values, row);
  const double of_first = pair.first.tolerance(row, column);
  const double of_second = pair.second.tolerance(row, column);
  out.terms = {{"difference", std::abs(pair.first.values(row, column) - pair.second.values(row, column))},
               {"running error of the first", of_first},
               {"running error of the second", of_second},
               {"their sum", of_first + of_second}};
}

/// Finds the states that a second call may have reset: without them the equations give what the second run
/// has.
void resumed(const Resolved& r, const TensorSystem& system, const std::string& native, const Parted& most,
             std::vector<std::string>& out) {
  const Parting& p = most.largest();
  const Index cut = most.comparison->place;
  Call call = system.call(r.c, native);
  call.form = system.row.forms.front().name;
  const Signature whole = system.row.signature(call);
  const Tensors<double> given = sequence_of(system.inputs(r), p.of.sequence);
  Call one = call;
  one.tokens = cut;
  const Tensors<double> carried = system.row.exact(one, slice(whole, given, given, call.tokens, 0, cut));
  one.tokens = call.tokens - cut;
  std::vector<std::string> states;
  for (const TensorSpec& spec : whole.inputs) {
    if (spec.axis == Axis::state) states.push_back(spec.name);
  }
  const auto without = [&](const std::vector<std::string>& lost) {
    Tensors<double> start = given;
    for (const std::string& name : states) start[name] = get(carried, name);
    for (const std::string& name : lost) start[name] = get(given, name);
    const Tensors<double> rest =
        system.row.exact(one, slice(whole, given, start, call.tokens, cut, call.tokens));
    const Matrix<double>& then = get(rest, p.of.name);
    return explained(p.pair->second.values.bottomRows(then.rows()),
                     p.pair->first.exact.bottomRows(then.rows()), then);
  };
  const auto say = [&](const std::vector<std::string>& lost) {
    out.push_back(
        fmt::format("the second call starts from a fresh {}: what the first left is lost at the resume",
                    fmt::join(lost, ", ")));
  };
  for (const std::string& name : states) {
    if (without({name})) return say({name});
  }
  if (states.size() > 1 && without(states)) say(states);
}

void of_calls(const Resolved& r, const TensorSystem& system, const std::string& native,
              const std::vector<Parted>& all, const Parted& most, std::vector<std::string>& out) {
  const Index T = r.c.T;
  const Index cut = most.comparison->place;
  resumed(r, system, native, most, out);
  if (most.tokens.empty()) {
    out.push_back("the rows by token agree: only what the last call leaves differs");
  } else if (*most.tokens.begin() < cut) {
    out.push_back(
        fmt::format("token(s) before the cut differ, from {} on: the first call reads or writes what "
                    "is not among its tokens",
                    *most.tokens.begin()));
  } else if (const Index count = std::ssize(most.tokens);
             *most.tokens.rbegin() - cut + 1 == count && cut + count < T) {
    out.push_back(
        fmt::format("only the {} token(s) after the cut, none later: a window that is not carried", count));
  } else {
    out.push_back("only after the cut: what is carried into the second call, or how it is used there");
  }
  const std::set<Index> differ = places(all, true);
  const bool single =
      std::all_of(differ.begin(), differ.end(), [&](Index place) { return place == 1 || place == T - 1; });
  if (single && differ.size() < all.size()) out.push_back("only where a call has one token");
}

void of_future(const Resolved& r, const std::vector<Parted>& all, const Parted& most,
               std::vector<std::string>& out) {
  if (most.tokens.empty()) return;
  const Index changed = most.comparison->place;
  out.push_back(fmt::format("not causal: token(s) {} depend on tokens from {} on",
                            ranges_text({most.tokens.begin(), most.tokens.end()}), changed));
  const Index chunk = r.chunk;
  Index ahead = 0;
  bool same_chunk = chunk > 1;
  bool every = true;
  for (const Parted& x : all) {
    if (x.tokens.empty()) continue;
    const Index t = x.comparison->place;
    ahead = std::max(ahead, t - *x.tokens.begin());
    same_chunk = same_chunk && *x.tokens.begin() / chunk == t / chunk;
    every = every && std::ssize(x.tokens) == t;
  }
  if (ahead == 1) {
    out.push_back("a token sees the one after it, none beyond");
  } else if (same_chunk) {
    out.push_back("a token sees others of its chunk alone: the mask inside a chunk");
  } else if (every) {
    out.push_back("every earlier token sees the change: something is taken over the whole sequence");
  }
}

void of_order(const Resolved& r, const Parted& most, std::vector<std::string>& out) {
  const Index B = r.c.B;
  const auto run = [&](Index b) { return fmt::format("sequence {}", b); };
  std::map<std::pair<std::string, Index>, const TensorLawPair*> pairs;
  for (const TensorLawPair& pair : most.comparison->pairs) pairs[{pair.output, pair.sequence}] = &pair;
  // In the second run, sequence b is in row B - 1 - b.
  std::set<std::string> exchanged;
  std::set<Index> first, second, taken;
  for (const Parting& p : most.outputs) {
    if (p.first_wrong) first.insert(p.of.sequence);
    if (p.second_wrong) second.insert(B - 1 - p.of.sequence);
    for (Index other = 0; other < B; ++other) {
      if (other == p.of.sequence) continue;
      const TensorLawPair& of = *pairs.at({p.of.name, other});
      if (!explained(p.pair->second.values, p.pair->first.exact, of.first.exact)) continue;
      exchanged.insert(run(p.of.sequence) + " has that of " + run(other));
      taken.insert(B - 1 - other);
      break;
    }
  }
  if (taken.size() == 1 && std::ssize(exchanged) == B - 1 && B > 1) {
    out.push_back(fmt::format("every row of the batch is given row {}'s result", *taken.begin()));
  } else if (!exchanged.empty()) {
    out.push_back(fmt::format("results are exchanged in the second: {}", fmt::join(exchanged, "; ")));
  }
  if (!exchanged.empty()) return;
  if (!first.empty() && first == second && std::ssize(first) < B) {
    out.push_back(
        fmt::format("row(s) {} of the batch are wrong whichever sequence stands there: they read or "
                    "write at another row's place",
                    ranges_text({first.begin(), first.end()})));
  } else {
    out.push_back("a sequence's result depends on what else is in the batch, or on its row there");
  }
}

/// The outputs that differ are a gradient, or a sum of gradients that a law names in its own words (d.q along q).
std::string of_gradients(const Parted& most) {
  static constexpr std::pair<std::string_view, std::string_view> kSums[] = {
      {"d.q along q", "d.q is wrong: no other gradient is in the sum"},
      {"d.k along k", "d.k or d.v is wrong, or d.beta if there is one"},
      {"d.v along v", "d.v or d.initial_state is wrong, or a cotangent is lost"},
      {"d.g by token",
       "d.g is wrong, or d.v or d.initial_state, or the cotangent of the final state is lost"}};
  const std::string& name = most.largest().of.name;
  const auto sum = std::ranges::find(kSums, name, &std::pair<std::string_view, std::string_view>::first);
  return std::string(sum != std::end(kSums)
                         ? sum->second
                         : "a cotangent, or the gradient of the state between tokens, is lost, counted twice "
                           "or reaches tokens that it does not belong to");
}

}  // namespace

Explanation explain_tensor_law(const Resolved& r, const TensorSystem& system, const Trace& trace) {
  Explanation out;
  out.expected = "first";
  out.actual = "second";
  std::vector<Parted> all;
  for (const TensorLawComparison& comparison : trace.tensor_law)
    all.push_back(parted(system, r.c, system.call(r.c, trace.native), comparison));
  const auto at = std::max_element(all.begin(), all.end(),
                                   [](const Parted& x, const Parted& y) { return x.less_than(y); });
  if (at == all.end()) return out;
  if (at->outputs.empty()) {
    for (const TensorLawComparison& x : trace.tensor_law) {
      if (x.words.empty()) continue;
      out.compared = {"first:  " + x.first, "second: " + x.second};
      out.differs = {x.words};
      out.patterns = {of_nobodys_rows(trace.tensor_law)};
      return out;
    }
    const auto neither = std::find_if(all.begin(), all.end(), [](const Parted& x) { return x.neither > 0; });
    if (neither == all.end()) return out;
    out.compared = {"first:  " + neither->comparison->first, "second: " + neither->comparison->second};
    out.differs = {fmt::format("in {} element(s) {}", neither->neither, kBothNotFinite)};
    return out;
  }
  say_compared(out, all, *at);
  say_differs(out, *at);
  switch (at->comparison->change) {
    case TensorChange::calls:
      of_calls(r, system, trace.native, all, *at, out.patterns);
      break;
    case TensorChange::future:
      of_future(r, all, *at, out.patterns);
      break;
    case TensorChange::order:
      of_order(r, *at, out.patterns);
      break;
    case TensorChange::history:
      out.patterns.push_back(
          "a request's result depends on the one before it: a state or cache is not begun again");
      break;
    case TensorChange::slots:
      out.patterns.push_back(
          "a request's result depends on its slot, its neighbours or how its calls are cut");
      break;
    case TensorChange::pool:
      out.patterns.push_back(of_nobodys_rows(trace.tensor_law));
      break;
    case TensorChange::cotangents:
      out.patterns.push_back(of_gradients(*at));
      break;
    case TensorChange::packing:
      out.patterns.push_back("a sequence's result depends on what is packed before or behind it");
      break;
  }
  const Parting& p = at->largest();
  const TensorLawSide* sides[2] = {&p.pair->first, &p.pair->second};
  for (int side = 0; side < 2; ++side) {
    if (!(side == 0 ? p.first_wrong : p.second_wrong)) continue;
    const TensorLawSide& x = *sides[side];
    const TensorDifference d = difference_of(p.of.name, p.of.sequence, x.exact, x.tolerance, x.values);
    for (const std::string& text : tensor_values(r.c, d, p.tokens, x.exact, x.values))
      out.patterns.push_back((side == 0 ? "the first: " : "the second: ") + text);
  }
  return out;
}

}  // namespace samestate
