#include "harness/explain/explain_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>

#include "harness/explain/explain_head.h"
#include "harness/explain/explain_parts.h"
#include "harness/systems/tensor_inputs.h"
#include "oracles/contract_points.h"

namespace samestate {
TensorDifference difference_of(const std::string& name, Index b, const Matrix<double>& exact,
                               const Matrix<double>& tolerance, const Matrix<double>& actual) {
  TensorDifference d;
  d.name = name;
  d.sequence = b;
  for (Index r = 0; r < exact.rows(); ++r) {
    bool row_wrong = false;
    for (Index j = 0; j < exact.cols(); ++j) {
      if (!std::isfinite(tolerance(r, j))) continue;
      const double error = std::abs(actual(r, j) - exact(r, j));
      const double ratio = std::isnan(error) ? std::numeric_limits<double>::infinity()
                           : error == 0.0    ? 0.0
                                             : error / tolerance(r, j);
      if (ratio > d.worst) d.worst = ratio, d.worst_row = r;
      if (ratio <= 1.0) {
        d.right = std::max(d.right, ratio);
        continue;
      }
      if (d.wrong == 0) d.first_column = j;
      row_wrong = true;
      ++d.wrong;
      d.columns.insert(j);
    }
    if (row_wrong) d.rows.push_back(r);
  }
  return d;
}

bool explained(const Matrix<double>& actual, const Matrix<double>& exact, const Matrix<double>& other) {
  const double whole = (actual - exact).norm();
  return whole > 0.0 && (actual - other).norm() <= (1.0 - kExplainedShare) * whole;
}

std::string row_text(Index row, Index rows, Index tokens) {
  if (tokens == 0 || rows % tokens != 0) return fmt::format("row {}", row);
  if (rows == tokens) return fmt::format("token {}", row);
  const Index each = rows / tokens;
  return fmt::format("row {} (token {}, its row {})", row, row / each, row % each);
}

namespace {

/// Returns the values of a token as one row.
Matrix<double> by_token(const Matrix<double>& x, Index tokens) {
  return Eigen::Map<const Matrix<double>>(x.data(), tokens, x.size() / tokens);
}

/// Returns "block 0 holds that of block 2, ..." if every wrong one of a token's n blocks holds the values of
/// another; otherwise empty.
std::string exchanged(const Matrix<double>& exact, const Matrix<double>& actual, Index n) {
  const Index width = exact.cols() / n;
  std::string text;
  int count = 0;
  for (Index j = 0; j < n; ++j) {
    const Matrix<double> mine = actual.middleCols(j * width, width);
    const Matrix<double> right = exact.middleCols(j * width, width);
    if ((mine - right).norm() <= (1.0 - kExplainedShare) * right.norm()) continue;
    Index from = 0;
    while (from < n && (from == j || !explained(mine, right, exact.middleCols(from * width, width)))) ++from;
    if (from == n) return {};
    if (++count <= 4) text += fmt::format("{}{} holds that of {}", text.empty() ? "" : ", ", j, from);
  }
  return text + (count > 4 ? ", ..." : "");
}

/// Finds right values in wrong places.
void rearranged(const Case& c, Index tokens, Index each, const Matrix<double>& exact,
                const Matrix<double>& actual, const std::function<void(const std::string&)>& say) {
  const Matrix<double> right = by_token(exact, tokens);
  const Matrix<double> now = by_token(actual, tokens);
  const Index rest = tokens - 1;
  if (rest >= 2) {
    if (explained(now.bottomRows(rest), right.bottomRows(rest), right.topRows(rest)))
      say("shifted: token t holds the value of token t - 1");
    if (explained(now.topRows(rest), right.topRows(rest), right.bottomRows(rest)))
      say("shifted: token t holds the value of token t + 1");
  }
  std::set<Index> counts{each};
  for (const auto& [name, value] : c.parameters) {
    counts.insert(value);
    if (value > 0 && right.cols() % value == 0) counts.insert(right.cols() / value);
  }
  for (const Index n : counts) {
    if (n < 2 || n > 256 || right.cols() % n != 0) continue;
    const Index width = right.cols() / n;
    if (const std::string text = exchanged(right, now, n); !text.empty()) {
      say(fmt::format("of the {} {} of a token, {}", n, n == each ? "rows (heads)" : "blocks", text));
      return;  // finer blocks would not say more
    }
    if (width < 2) continue;
    Matrix<double> woven(right.rows(), right.cols());
    for (Index i = 0; i < right.cols(); ++i) woven.col(i % width * n + i / width) = right.col(i);
    if (explained(now, right, woven)) {
      say(fmt::format("the {} blocks of {} of a token are interleaved", n, width));
      return;
    }
  }
}

/// Names of the patterns in which tokens are wrong.
std::vector<std::string> tensor_places(const Resolved& r, const TensorDifference& d, Index tokens,
                                       Index rows) {
  std::vector<std::string> out;
  if (tokens == 0 || rows % tokens != 0) return out;
  const auto say = [&](const std::string& what) { out.push_back(d.name + ": " + what); };
  std::set<Index> wrong;
  for (const Index row : d.rows) wrong.insert(row / (rows / tokens));
  const auto all = [&](auto&& test) { return std::all_of(wrong.begin(), wrong.end(), test); };
  if (std::ssize(wrong) == tokens) return out;
  say(fmt::format("from token {} on, {} of {} tokens: {}", *wrong.begin(), wrong.size(), tokens,
                  ranges_text({wrong.begin(), wrong.end()})));
  const bool last_alone = tokens > 2 && wrong.size() == 1 && *wrong.begin() == tokens - 1;
  if (last_alone) say("only the last token");
  if (tokens > 2 && wrong.size() == 1 && *wrong.begin() == 0) say("only the first token");
  const Index C = r.chunk;
  if (r.form->decodes) {
    const Index first = std::max<Index>(r.c.prefill, 1);
    if (*wrong.begin() >= first) {
      say(fmt::format("only after the resume: the {} token(s) before a state was carried are right", first));
    }
  } else if (C > 1 && tokens > C) {
    const bool first_alone = wrong.size() == 1 && *wrong.begin() == 0;
    if (!first_alone && !last_alone && all([&](Index t) { return t % C == 0; }))
      say("only the first token of a chunk");
    if (tokens % C != 0 && all([&](Index t) { return t >= tokens - tokens % C; }))
      say("only the last, partial chunk");
    if (const std::string second = second_chunk_text({wrong.begin(), wrong.end()}, C, tokens);
        !second.empty())
      say(second);
  }
  return out;
}

/// Says which heads of an output are wrong, if its rows are those of a token's heads or of heads' states and
/// not all are wrong.
std::vector<std::string> tensor_heads(const TensorSpec& spec, const TensorDifference& d) {
  const Extents& shape = spec.shape;
  if (shape.size() < 3) return {};
  // The shapes are [T, H, d] or, for states, [H, dk, dv] and [P, H, dk, dv].
  const bool state = spec.axis == Axis::state;
  const std::size_t at = state ? shape.size() - 3 : shape.size() - 2;
  const Index heads = shape[at];
  const Index each = state ? shape[at + 1] : 1;
  std::set<Index> wrong;
  for (const Index row : d.rows) wrong.insert(row / each % heads);
  if (heads < 2 || std::ssize(wrong) == heads) return {};
  return {fmt::format("{}: only head(s) {} of {}", d.name, ranges_text({wrong.begin(), wrong.end()}), heads)};
}

/// Says what a request in a slot of a pool did although it must not.
std::vector<std::string> tensor_slots(const Resolved& r, const TensorSpec& spec, const TensorDifference& d) {
  std::vector<std::string> out;
  if (!r.system->has(Property::slots)) return out;
  for (const CaseTensor& x : tensor_inputs(r)) {
    if (x.spec.content != Content::slot) continue;
    const Index slot = std::lround(x.data[static_cast<std::size_t>(d.sequence)]);
    if (slot < 0)
      out.push_back(
          fmt::format("sequence {} has no slot ({} is {}): its outputs are zero and no row is written",
                      d.sequence, x.spec.name, slot));
    if (spec.axis != Axis::state) continue;
    const Index each = spec.rows() / x.spec.slots;
    std::set<Index> others;
    for (const Index row : d.rows) {
      if (row / each != slot) others.insert(row / each);
    }
    if (!others.empty())
      out.push_back(
          fmt::format("{}: rows of slot(s) {}, and the request's is {}: they must stay as they were given",
                      d.name, ranges_text({others.begin(), others.end()}), slot));
  }
  return out;
}

}  // namespace

namespace {

/// Says which columns are wrong if not all are; for heads, which heads and which of their channels.
std::string columns_text(const TensorDifference& d, Index columns) {
  if (std::ssize(d.columns) == columns) return {};
  const auto listed = [](const std::set<Index>& wrong) { return ranges_text({wrong.begin(), wrong.end()}); };
  const Index width = d.axis.width;
  if (width == 0) return fmt::format("only {}(s) {}", d.axis.word, listed(d.columns));
  std::set<Index> heads, channels;
  for (const Index j : d.columns) heads.insert(j / width), channels.insert(j % width);
  std::vector<std::string> parts;
  if (std::ssize(heads) < columns / width)
    parts.push_back(fmt::format("head(s) {} of {}", listed(heads), columns / width));
  if (std::ssize(channels) < width)
    parts.push_back(fmt::format("channel(s) {} of the {} of a head", listed(channels), width));
  return parts.empty() ? "" : fmt::format("only {}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::string> tensor_values(const Case& c, const TensorDifference& d, Index tokens,
                                       const Matrix<double>& exact, const Matrix<double>& actual) {
  std::vector<std::string> out;
  const auto say = [&](const std::string& what) { out.push_back(d.name + ": " + what); };
  const bool finite = actual.allFinite();
  if (!finite) say("some values are NaN, infinite or were never written");
  if (finite && actual.isZero(0)) say("all zero");
  const double factor = constant_factor(exact, actual);
  if (!std::isnan(factor)) say(fmt::format("the right values times {:.6g}", factor));
  if (finite && exact.rows() == exact.cols() && exact.rows() > 1 &&
      explained(actual, exact, exact.transpose())) {
    say("transposed");
  }
  if (const std::string text = columns_text(d, exact.cols()); !text.empty()) {
    const std::vector<Index> columns(d.columns.begin(), d.columns.end());
    const double there = constant_factor(exact(d.rows, columns), actual(d.rows, columns));
    say(std::isnan(there) ? text : fmt::format("{}: the right values there times {:.6g}", text, there));
  }
  if (tokens == 0 || exact.rows() % tokens != 0) return out;
  if (finite && std::isnan(factor)) rearranged(c, tokens, exact.rows() / tokens, exact, actual, say);
  return out;
}

namespace {

/// Names the patterns in the places of the wrong elements, for the worst output and for all.
std::vector<std::string> all_places(const Resolved& r, const Signature& signature,
                                    const std::vector<TensorDifference>& found, const TensorDifference& worst,
                                    Index tokens, Index rows) {
  std::vector<std::string> out = tensor_places(r, worst, tokens, rows);
  const auto spec = std::ranges::find(signature.outputs, worst.name, &TensorSpec::name);
  if (spec != signature.outputs.end()) std::ranges::move(tensor_heads(*spec, worst), std::back_inserter(out));
  std::set<std::string> wrong_names;
  std::set<Index> sequences;
  for (const TensorDifference& d : found) {
    wrong_names.insert(d.name);
    sequences.insert(d.sequence);
  }
  if (wrong_names.size() == 1 && signature.outputs.size() > 1)
    out.push_back(fmt::format("only {}: the other output(s) are right", worst.name));
  std::vector<Index> all(static_cast<std::size_t>(sequences_of(r.c)));
  std::iota(all.begin(), all.end(), Index{0});
  if (std::string text = sequences_text({sequences.begin(), sequences.end()}, all); !text.empty())
    out.push_back(std::move(text));
  return out;
}

/// Returns "S: the right values times 0.999" for each output that a single factor explains in all sequences.
std::vector<std::string> tensor_factors(const std::vector<OperatorOracle>& oracles,
                                        const std::vector<Tensors<double>>& outputs) {
  std::vector<std::string> out;
  if (oracles.empty()) return out;
  for (const auto& [name, first] : oracles.front().exact) {
    std::vector<double> expected, actual;
    for (std::size_t b = 0; b < oracles.size(); ++b) {
      const Matrix<double>& e = get(oracles[b].exact, name);
      const Matrix<double>& a = get(outputs[b], name);
      expected.insert(expected.end(), e.data(), e.data() + e.size());
      actual.insert(actual.end(), a.data(), a.data() + a.size());
    }
    const Index size = std::ssize(expected);
    const double factor = constant_factor(Eigen::Map<Matrix<double>>(expected.data(), 1, size),
                                          Eigen::Map<Matrix<double>>(actual.data(), 1, size));
    if (!std::isnan(factor)) out.push_back(fmt::format("{}: the right values times {:.6g}", name, factor));
  }
  return out;
}

}  // namespace

Explanation explain_tensors(const Resolved& r, const TensorSystem& system, const Trace& trace) {
  const Case& c = r.c;
  Explanation out;
  if (trace.outputs.empty()) return out;
  const std::vector<Tensors<double>> outputs = by_sequence(trace.outputs);
  const Call whole = system.call(c, trace.native);
  const Signature signature = system.row.signature(whole);
  const std::vector<OperatorOracle>& oracles = trace.oracles;
  std::vector<TensorDifference> found;
  double right = 0.0;
  for (Index b = 0; b < sequences_of(c); ++b) {
    const OperatorOracle& of = oracles[static_cast<std::size_t>(b)];
    for (const auto& [name, exact] : of.exact) {
      TensorDifference d = difference_of(name, b, exact, get(of.tolerance, name),
                                         get(outputs[static_cast<std::size_t>(b)], name));
      right = std::max(right, d.right);
      if (d.wrong == 0) continue;
      d.axis = last_axis(system.row, call_of_sequence(whole, c, b), name);
      out.differs.push_back(fmt::format("{} of sequence {}: {} of {} elements in {} row(s): {}", name, b,
                                        d.wrong, exact.size(), d.rows.size(), ranges_text(d.rows)));
      found.push_back(std::move(d));
    }
  }
  if (found.empty()) {  // each element is within its tolerance, but together they are too far off
    out.patterns = tensor_factors(oracles, outputs);
    return out;
  }
  const auto of_tokens = [&](const TensorDifference& d) {
    return std::any_of(signature.outputs.begin(), signature.outputs.end(), [&](const TensorSpec& spec) {
      return spec.name == d.name && spec.axis == Axis::tokens;
    });
  };
  // A difference by token is more telling than one in the final state.
  const TensorDifference& worst =
      *std::max_element(found.begin(), found.end(), [&](const auto& x, const auto& y) {
        return of_tokens(x) != of_tokens(y) ? of_tokens(y) : x.worst < y.worst;
      });
  const OperatorOracle& oracle = oracles[static_cast<std::size_t>(worst.sequence)];
  const Matrix<double>& exact = get(oracle.exact, worst.name);
  const Matrix<double>& actual = get(outputs[static_cast<std::size_t>(worst.sequence)], worst.name);
  const Index tokens = of_tokens(worst) ? tokens_of(c, worst.sequence) : 0;
  out.patterns = tensor_values(c, worst, tokens, exact, actual);
  // Other outputs of the same sequence are tested for a constant factor too, because a factor on a state says
  // more than the places where it shows.
  for (const TensorDifference& d : found) {
    if (d.sequence != worst.sequence || d.name == worst.name) continue;
    const double factor = constant_factor(get(oracle.exact, d.name),
                                          get(outputs[static_cast<std::size_t>(d.sequence)], d.name));
    if (!std::isnan(factor))
      out.patterns.push_back(fmt::format("{}: the right values times {:.6g}", d.name, factor));
  }
  const auto take = [&](std::vector<std::string> places) {
    std::ranges::move(places, std::back_inserter(out.patterns));
  };
  const auto spec = std::ranges::find(signature.outputs, worst.name, &TensorSpec::name);
  if (spec != signature.outputs.end()) take(tensor_slots(r, *spec, worst));
  if (!(worst.worst < kAnotherThing * right))
    take(all_places(r, signature, found, worst, tokens, exact.rows()));
  const std::string place = fmt::format("{}: sequence {}, {}", worst.name, worst.sequence,
                                        row_text(worst.worst_row, exact.rows(), tokens));
  show_row(out, place, worst.axis, exact, actual, worst.worst_row);
  const Index column = worst_column(exact, actual, worst.worst_row);
  out.terms.push_back({"error", std::abs(exact(worst.worst_row, column) - actual(worst.worst_row, column))});
  out.terms.push_back(
      {"running error of the form", get(oracle.tolerance, worst.name)(worst.worst_row, column)});
  return out;
}

}  // namespace samestate
