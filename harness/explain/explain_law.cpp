#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/explain/explain_head.h"
#include "harness/explain/explain_parts.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/reasons.h"

namespace samestate {
namespace {

using Change = LawComparison::Change;

bool any_wrong(const std::vector<HeadDifference>& heads) {
  return std::any_of(heads.begin(), heads.end(), [](const HeadDifference& d) { return d.wrong(); });
}

/// Returns the rows of `part` from `begin` on after as many rows of zeros as there are tokens before them, so
/// that tokens keep their numbers.
Matrix<double> in_place(const Matrix<double>& part, Index begin, Index rows, Index before) {
  Matrix<double> out = Matrix<double>::Zero(before + rows, part.cols());
  if (rows > 0) out.bottomRows(rows) = part.middleRows(begin, rows);
  return out;
}

/// Sets elements that are not finite in either run to zero, since they do not differ; returns their number.
Index without_what_neither_has(Matrix<double>& first, Matrix<double>& second) {
  Index count = 0;
  for (Index e = 0; e < first.size(); ++e) {
    double& x = first.data()[e];
    double& y = second.data()[e];
    if (std::isfinite(x) || std::isfinite(y)) continue;
    x = y = 0.0;
    ++count;
  }
  return count;
}

/// Returns the difference of a pair, with the first run in the place of the oracle; `neither` counts the
/// elements that are finite in neither.
HeadDifference head_difference_of(const LawPair& pair, bool at_most, Index& neither) {
  const LawHead& a = pair.first;
  const LawHead& b = pair.second;
  const Index before = std::max(pair.first_row, pair.second_row);
  HeadDifference d;
  d.sequence = pair.sequence;
  d.head = pair.head;
  d.exact.o = in_place(a.o, pair.first_row, pair.rows, before);
  d.o = in_place(b.o, pair.second_row, pair.rows, before);
  d.row = Vector<double>::Zero(before + pair.rows);
  if (pair.rows > 0) {
    d.row.tail(pair.rows) =
        a.oracle.row.segment(pair.first_row, pair.rows) + b.oracle.row.segment(pair.second_row, pair.rows);
  }
  if (pair.states) d.exact.state = a.state, d.state = b.state;
  if (at_most) {
    for (Index t = 0; t < d.o.rows(); ++t) {
      if (d.o(t, 0) <= a.o(t, 0)) d.exact.o(t, 0) = d.o(t, 0);
    }
    if (pair.states && d.state(0, 0) <= a.state(0, 0)) d.exact.state = d.state;
  }
  neither += without_what_neither_has(d.exact.o, d.o) + without_what_neither_has(d.exact.state, d.state);
  find_wrong(d, a.oracle.state + b.oracle.state);
  return d;
}

/// A comparison and its differences, head by head.
struct Seen {
  const LawComparison* comparison = nullptr;
  std::vector<HeadDifference> heads;
  std::set<Index> tokens;  ///< wrong tokens of any head
  double worst = 0.0;
  Index neither = 0;  ///< elements that are finite in neither run
  Index place = -1;   ///< LawComparison::place
  bool edge = false;  ///< true for a cut with nothing on one side

  /// A difference in o is more telling than one in the state only, and a cut between tokens is more telling
  /// than one at an end.
  [[nodiscard]] bool less_than(const Seen& other) const {
    if (const bool mine = worst > 0 && !edge, theirs = other.worst > 0 && !other.edge; mine != theirs)
      return theirs;
    const bool rows = !tokens.empty();
    const bool other_rows = !other.tokens.empty();
    return rows != other_rows ? other_rows : worst < other.worst;
  }
};

Seen seen(const LawComparison& comparison) {
  Seen out;
  out.comparison = &comparison;
  if (comparison.pairs.empty()) return out;
  out.place = comparison.place;
  out.edge = comparison.change == Change::calls &&
             (out.place == 0 || out.place == comparison.second_run->batch.shape.T);
  for (const LawPair& pair : comparison.pairs) {
    const HeadDifference& d =
        out.heads.emplace_back(head_difference_of(pair, comparison.at_most, out.neither));
    out.tokens.insert(d.tokens.begin(), d.tokens.end());
    if (d.wrong()) out.worst = std::max(out.worst, d.worst_ratio);
  }
  return out;
}

/// Returns the case that a law's run would be by itself, so that the patterns know its chunks and where it
/// resumes.
Resolved case_of(const Case& c, const LawRun& run) {
  const BatchShape& s = run.batch.shape;
  Case own = c;
  own.law.clear();
  own.regime = "normal";
  own.B = s.B, own.T = s.T, own.Hk = s.Hk, own.Hv = s.Hv, own.dk = s.dk, own.dv = s.dv;
  own.heads = s.head_map;
  own.chunk = run.path.front().chunk;
  own.prefill = 0, own.step = 1, own.cached = false;
  own.lengths.clear();
  // Ranks that divide heads do not matter for what a single head must satisfy.
  own.ranks = std::max<Index>(std::ssize(run.path.front().cuts) - 1, 1);
  own.form = own.chunk == 0 ? "recurrent" : own.ranks > 1 ? "sequence_parallel" : "chunked";
  if (own.ranks == 1) own.cuts = Case{}.cuts;
  if (!s.offsets.empty()) {
    own.form = "packed";
    for (std::int64_t n = 0; n < s.sequences(); ++n) own.lengths.push_back(s.end(n) - s.begin(n));
  } else if (run.path.size() == 2) {
    own.form = "decode";
    own.prefill = run.path.front().tokens;
  } else if (run.path.size() > 2) {
    own.form = "recurrent";  // calls of different lengths have no common chunks
    own.ranks = 1, own.cuts = Case{}.cuts;
  }
  return Resolved(own);
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from,
            const std::string& prefix = {}) {
  for (const std::string& text : from) {
    if (std::none_of(to.begin(), to.end(), [&](const std::string& t) { return t.ends_with(text); }))
      to.push_back(prefix + text);
  }
}

/// Compares one side with the equations themselves; empty if it satisfies them.
std::vector<std::string> side_patterns(const Case& c, const Family& family, const LawRun& run, bool& right) {
  const Resolved own = case_of(c, run);
  const std::vector<HeadDifference> heads = head_differences(own, family, run.batch, run.out, &run.path);
  right = !any_wrong(heads);
  if (right) return {};
  std::vector<std::string> out = mistakes(own, family, run.batch, heads);
  append(out, place_patterns(own, heads));
  append(out, value_patterns(own, run.out, heads));
  return out;
}

/// Finds places of the pair that hold what belongs to another place.
void exchanged(const Seen& seen, std::vector<std::string>& out) {
  std::string text;
  int count = 0;
  for (const HeadDifference& d : seen.heads) {
    if (!d.wrong()) continue;
    const double whole = (d.o - d.exact.o).norm() + (d.state - d.exact.state).norm();
    const auto other = std::find_if(seen.heads.begin(), seen.heads.end(), [&](const HeadDifference& e) {
      if (&e == &d || e.o.rows() != d.o.rows() || e.state.rows() != d.state.rows()) return false;
      return (d.o - e.exact.o).norm() + (d.state - e.exact.state).norm() <= (1.0 - kExplainedShare) * whole;
    });
    if (other == seen.heads.end()) return;  // the exchange would not explain everything that is wrong
    if (++count > 4) continue;
    text += fmt::format("{}sequence {}, head {} has that of sequence {}, head {}", text.empty() ? "" : "; ",
                        d.sequence, d.head, other->sequence, other->head);
  }
  if (count > 0) out.push_back("results are exchanged: " + text + (count > 4 ? "; ..." : ""));
}

/// Tokens before `changed` must not depend on it or on later tokens.
void not_causal(const Resolved& r, const std::vector<Seen>& all, const Seen& worst,
                std::vector<std::string>& out) {
  if (worst.tokens.empty()) return;
  const Index changed = worst.place;
  out.push_back(fmt::format("not causal: token(s) {} depend on tokens from {} on",
                            ranges_text({worst.tokens.begin(), worst.tokens.end()}), changed));
  Index ahead = 0;
  const Index chunk = r.form->decodes || r.form->packed ? 0 : r.chunk;
  bool same_chunk = chunk > 1;
  for (const Seen& s : all) {
    if (s.tokens.empty()) continue;
    const Index t = s.place;
    ahead = std::max(ahead, t - *s.tokens.begin());
    same_chunk = same_chunk && *s.tokens.begin() / chunk == t / chunk;
  }
  if (ahead == 1) {
    out.push_back("a token sees the one after it, none beyond");
  } else if (same_chunk) {
    out.push_back("a token sees others of its chunk alone: the mask inside a chunk");
  }
}

/// Tests whether the run with alpha = 0 at a token behaves as if alpha were 1 there.
void reset_ignored(const Family& family, const Seen& seen, std::vector<std::string>& out) {
  const LawRun& run = *seen.comparison->first_run;
  double whole = 0.0;
  double rest = 0.0;
  for (const LawPair& pair : seen.comparison->pairs) {
    Sequence<double> x = sequence_of(run.batch, pair.first.sequence, pair.first.head);
    for (double& g : x.g) g = g < -1e29 ? 0.0 : g;
    const Trajectory<double> ignored = family.recurrent(x);
    whole += (pair.first.o - pair.first.oracle.exact.o).squaredNorm();
    rest += (pair.first.o - ignored.o).squaredNorm();
  }
  if (whole > 0.0 && rest <= (1.0 - kExplainedShare) * (1.0 - kExplainedShare) * whole)
    out.push_back("the first: alpha = 0 is ignored, as if it were 1");
}

/// Finds the slot's call that contains its first wrong token, and what that call may have started from.
void calls(const Family& family, const Seen& seen, std::vector<std::string>& out) {
  const LawRun& run = *seen.comparison->second_run;
  Index first = run.batch.shape.T;
  for (const HeadDifference& d : seen.heads) {
    if (!d.tokens.empty()) first = std::min(first, d.tokens.front());
  }
  if (first == run.batch.shape.T) {
    out.push_back("the rows of o are right so far: the state that the last call left is not");
    return;
  }
  Index begin = 0;
  std::size_t call = 0;
  while (begin + run.path[call].tokens <= first) begin += run.path[call++].tokens;
  const Index count = run.path[call].tokens;
  // A single call that covers everything is not worth a sentence.
  if (run.path.size() > 1 || first > begin)
    out.push_back(fmt::format("{} the slot's call {} of {} ({} token(s) from token {} on)",
                              first == begin ? "from the first token of" : "within", call + 1,
                              run.path.size(), count, begin));
  if (first != begin) return;
  const auto from = [&](const char* what, bool initial) {
    for (const HeadDifference& d : seen.heads) {
      if (d.tokens.empty()) continue;
      const Sequence<double> x = sequence_of(run.batch, 0, d.head);
      const Matrix<double> start =
          initial ? x.initial_state : Matrix<double>::Zero(x.key_width(), x.value_width());
      const Matrix<double> o = family.recurrent(x.slice(begin, begin + count, start)).o;
      const double whole = (d.o - d.exact.o).middleRows(begin, count).norm();
      if (!((d.o.middleRows(begin, count) - o).norm() <= (1.0 - kExplainedShare) * whole)) return;
    }
    out.push_back(fmt::format("that call started from {} instead of the slot's", what));
  };
  from("a zero state", false);
  if (begin > 0) from("the request's initial state", true);
}

void show_bounds(Explanation& out, const Seen& seen, const HeadDifference& worst) {
  const auto index = static_cast<std::size_t>(&worst - seen.heads.data());
  const LawPair& pair = seen.comparison->pairs[index];
  double first = pair.first.oracle.state;
  double second = pair.second.oracle.state;
  if (worst.worst_token >= 0) {
    const Index row = worst.worst_token - std::max(pair.first_row, pair.second_row);
    out.terms.push_back({"difference of the row",
                         (worst.o.row(worst.worst_token) - worst.exact.o.row(worst.worst_token)).norm()});
    first = pair.first.oracle.row(pair.first_row + row);
    second = pair.second.oracle.row(pair.second_row + row);
  } else {
    out.terms.push_back({"difference of the state", (worst.state - worst.exact.state).norm()});
  }
  out.terms.push_back({"bound of the first", first});
  out.terms.push_back({"bound of the second", second});
  out.terms.push_back({"their sum", first + second});
}

/// Returns the patterns in the places, if two whole runs are compared.
std::vector<std::string> pair_patterns(Resolved own, const Seen& seen) {
  const LawPair& pair = seen.comparison->pairs.front();
  if (pair.first_row != 0 || pair.second_row != 0 || pair.rows < 2) return {};
  own.c.dv = pair.first.o.cols();
  std::vector<std::string> out = place_patterns(own, seen.heads);
  if (!pair.states) std::erase_if(out, [](const std::string& text) { return text.starts_with("only o:"); });
  return out;
}

/// Lists the places where the comparisons differ, or agree.
std::string places(const std::vector<Seen>& all, bool differing) {
  std::set<Index> found;
  for (const Seen& s : all) {
    if ((s.worst > 0) == differing) found.insert(s.place);
  }
  const std::string text = ranges_text({found.begin(), found.end()});
  return differing ? text : text.empty() ? "at none do they agree" : "they agree at " + text;
}

std::vector<Seen> seen_in(const LawTrace& trace) {
  std::vector<Seen> all;
  for (const LawComparison& comparison : trace.comparisons) all.push_back(seen(comparison));
  return all;
}

std::vector<Seen>::const_iterator most_different(const std::vector<Seen>& all) {
  return std::max_element(all.begin(), all.end(),
                          [](const Seen& a, const Seen& b) { return a.less_than(b); });
}

}  // namespace

std::optional<RunAlone> wrong_run(const Resolved& r, const Trace& trace) {
  if (r.law == nullptr || !r.system->of_family()) return std::nullopt;
  const Family& family = family_named(r.c.system);
  const std::vector<Seen> all = seen_in(trace.law);
  const auto at = most_different(all);
  if (at == all.end() || !any_wrong(at->heads)) return std::nullopt;
  for (const std::optional<LawRun>* run : {&at->comparison->first_run, &at->comparison->second_run}) {
    if (!*run || (*run)->path.size() > 1 || !(*run)->batch.shape.offsets.empty()) continue;
    const LawRun& of = **run;
    Case own = case_of(r.c, of).c;
    own.state = of.batch.initial_state.empty() ? "none" : "random";
    const Resolved alone(own);
    if (!any_wrong(head_differences(alone, family, of.batch, of.out, &of.path))) continue;
    return RunAlone{alone,
                    {tensors_of(alone, of.batch),
                     tensors_of(alone, of.out),
                     own.chunk > 0 ? "chunked" : "recurrent",
                     {},
                     {},
                     {},
                     of.batch.shape.given}};
  }
  return std::nullopt;
}

Explanation explain_law(const Resolved& r, const Family& family, const Trace& trace) {
  const Case& c = r.c;
  Explanation out;
  out.expected = "first";
  out.actual = "second";
  const std::vector<Seen> all = seen_in(trace.law);
  const auto at = most_different(all);
  if (at == all.end()) return out;
  if (!any_wrong(at->heads)) {
    const auto neither = std::find_if(all.begin(), all.end(), [](const Seen& s) { return s.neither > 0; });
    if (neither == all.end()) return out;
    out.compared = {"first:  " + neither->comparison->first, "second: " + neither->comparison->second};
    out.differs = {fmt::format("in {} element(s) {}", neither->neither, kBothNotFinite)};
    return out;
  }
  const LawComparison& comparison = *at->comparison;
  out.compared = {"first:  " + comparison.first, "second: " + comparison.second};
  if (all.size() > 1) {
    const auto differing = std::count_if(all.begin(), all.end(), [](const Seen& s) { return s.worst > 0; });
    std::string text = fmt::format("{} of {} such comparisons differ; this one most", differing, all.size());
    if (at->place >= 0) text += fmt::format(" (at token {}; {})", places(all, true), places(all, false));
    out.compared.push_back(std::move(text));
  }
  out.program = trace.law.program;

  const Resolved own = comparison.second_run  ? case_of(c, *comparison.second_run)
                       : comparison.first_run ? case_of(c, *comparison.first_run)
                                              : r;
  const HeadDifference& worst = *show_differences(out, own, at->heads);
  exchanged(*at, out.patterns);
  if (comparison.change == Change::future) not_causal(own, all, *at, out.patterns);
  if (comparison.change == Change::reset) reset_ignored(family, *at, out.patterns);
  if (comparison.change == Change::slots) calls(family, *at, out.patterns);
  append(out.patterns, pair_patterns(own, *at));
  bool right[2] = {true, true};
  const std::optional<LawRun>* runs[2] = {&comparison.first_run, &comparison.second_run};
  std::vector<std::string> found[2];
  for (int side = 0; side < 2; ++side) {
    if (*runs[side]) found[side] = side_patterns(c, family, **runs[side], right[side]);
  }
  if (comparison.first_run && comparison.second_run) {
    out.compared.push_back(fmt::format("against the equations, the first is {} and the second is {}",
                                       right[0] ? "right" : "wrong", right[1] ? "right" : "wrong"));
  }
  append(out.patterns, found[0], "the first: ");
  append(out.patterns, found[1], "the second: ");
  std::vector<std::string> values;
  for (const HeadDifference& d : at->heads) {
    if (!d.wrong() || d.tokens.empty()) continue;
    const double factor = constant_factor(d.exact.o, d.o);
    if (!std::isnan(factor) && std::abs(factor) > 0.0)
      values.push_back(fmt::format("the second is the first times {:.6g}", factor));
    break;
  }
  append(out.patterns, values);
  show_bounds(out, *at, worst);
  return out;
}

}  // namespace samestate
