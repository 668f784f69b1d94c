#include "harness/explain/explain_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "harness/cases/regimes.h"
#include "harness/explain/explain.h"
#include "harness/run/guard.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ratio_of(double error, double tolerance) {
  if (std::isnan(error)) return kInfinity;
  return error == 0.0 ? 0.0 : error / tolerance;
}

HeadDifference compared_head(const Resolved& r, const Family& family, const Batch& batch,
                             const Outputs& outputs, Index n, Index h, const Path* path) {
  const Sequence<double> x = sequence_of(batch, n, h);
  const Path rows = path == nullptr ? r.path(batch.shape.T) : *path;
  const HeadOracle oracle =
      oracle_of(x, path_of_sequence(rows, batch.shape, n), r.promised, family, batch.shape.l2norm);
  HeadDifference d;
  d.sequence = n;
  d.head = h;
  d.exact = oracle.exact;
  d.o = rows_of(batch, outputs, n, h);
  d.state = state_of(batch, outputs, n, h);
  const bool exact = path == nullptr && (r.regime->exact || x.tokens() == 0);
  // If a whole run has no bound, the worst rows are still worth a look: those with a tenth of the largest
  // error.
  d.row = exact ? Vector<double>::Zero(x.tokens()).eval() : oracle.row;
  const Vector<double> error = (d.o - d.exact.o).rowwise().norm();
  if (!exact && path == nullptr && (oracle.vacuous || !d.row.allFinite())) {
    double largest = 0.0;
    for (const double e : error) largest = std::isfinite(e) ? std::max(largest, e) : largest;
    d.row.setConstant(0.1 * largest);
  }
  find_wrong(d, exact ? 0.0 : oracle.state);
  return d;
}

/// Returns the channels that are wrong over all wrong rows: those with at least a tenth of the row's largest
/// error. Returns none if other channels have a hundredth of it: errors of all sizes have no particular
/// place.
std::vector<Index> channels_of(const std::vector<HeadDifference>& heads) {
  constexpr double kWrong = 0.1, kRight = 0.01;
  std::set<Index> channels, between;
  for (const HeadDifference& d : heads) {
    for (const Index t : d.tokens) {
      const Vector<double> e = (d.o.row(t) - d.exact.o.row(t)).cwiseAbs().transpose();
      double largest = 0.0;
      for (const double x : e) largest = std::isfinite(x) ? std::max(largest, x) : largest;
      for (Index j = 0; j < e.size(); ++j) {
        const bool finite = e.allFinite();
        const bool wrong_here = finite ? e(j) > 0 && e(j) >= kWrong * largest : !std::isfinite(e(j));
        if (wrong_here) channels.insert(j);
        if (finite && !wrong_here && e(j) > kRight * largest) between.insert(j);
      }
    }
  }
  if (!std::ranges::includes(channels, between)) return {};
  return {channels.begin(), channels.end()};
}

std::vector<Index> tokens_of(const std::vector<HeadDifference>& heads) {
  std::set<Index> tokens;
  for (const HeadDifference& d : heads) tokens.insert(d.tokens.begin(), d.tokens.end());
  return {tokens.begin(), tokens.end()};
}

template <class Key>
std::vector<Index> wrong_of(const std::vector<HeadDifference>& heads, Key&& key) {
  std::set<Index> out;
  for (const HeadDifference& d : heads) {
    if (d.wrong()) out.insert(key(d));
  }
  return {out.begin(), out.end()};
}

bool held_in_bf16(const Matrix<double>& x) {
  for (Index i = 0; i < x.size(); ++i) {
    if (round_to(x.data()[i], Format::bf16) != x.data()[i]) return false;
  }
  return x.size() >= 8 && !x.isZero(0);
}

void token_patterns(const Resolved& r, const std::vector<HeadDifference>& heads,
                    std::vector<std::string>& out) {
  const std::vector<Index> tokens = tokens_of(heads);
  if (tokens.empty()) return;
  Index T = 0;  // tokens of the sequences with errors: a sequence of one token can only be wrong in its first
  for (const HeadDifference& d : heads) {
    if (!d.tokens.empty()) T = std::max<Index>(T, d.o.rows());
  }
  const auto all = [&](auto&& test) { return std::all_of(tokens.begin(), tokens.end(), test); };
  const Index C = r.unchunked() || r.form->whole ? 0 : r.c.chunk;
  if (r.form->decodes && r.c.prefill > 0 && tokens.front() >= r.c.prefill) {
    out.push_back(fmt::format("only after the resume: the {} tokens before it are right", r.c.prefill));
  } else if (r.form->decodes && T > r.c.prefill && all([&](Index t) { return t < r.c.prefill; })) {
    out.push_back("only before the resume: the tokens after it are right");
  }
  const bool last_alone = T > 2 && tokens.size() == 1 && tokens[0] == T - 1;
  if (C > 1 && T > C) {
    if (!last_alone && all([&](Index t) { return t % C == 0; }))
      out.push_back("only the first token of a chunk");
    if (all([&](Index t) { return t % C == C - 1; })) out.push_back("only the last token of a chunk");
    if (T % C != 0 && all([&](Index t) { return t >= T - T % C; }))
      out.push_back("only the last, partial chunk");
    if (std::string second = second_chunk_text(tokens, C, T); !second.empty())
      out.push_back(std::move(second));
    if (tokens.back() < C) out.push_back("only the first chunk");
  }
  if (last_alone) out.push_back("only the last token");
  if (T > 2 && tokens.size() == 1 && tokens[0] == 0) out.push_back("only the first token");
}

/// Returns true if the wrong errors stand out clearly from the largest right one.
bool stand_out(const std::vector<HeadDifference>& heads) {
  double wrong_ratio = 0.0, right_ratio = 0.0;
  for (const HeadDifference& d : heads) {
    if (d.wrong()) wrong_ratio = std::max(wrong_ratio, d.worst_ratio);
    right_ratio = std::max(right_ratio, d.right_ratio);
  }
  return !(wrong_ratio < kAnotherThing * right_ratio);
}

}  // namespace

void find_wrong(HeadDifference& d, double state_tolerance) {
  const Vector<double> error = (d.o - d.exact.o).rowwise().norm();
  for (Index t = 0; t < error.size(); ++t) {
    const double ratio = ratio_of(error(t), d.row(t));
    if (!(ratio <= 1.0)) d.tokens.push_back(t);
    if (ratio <= 1.0) d.right_ratio = std::max(d.right_ratio, ratio);
    if (ratio > d.worst_ratio) d.worst_ratio = ratio, d.worst_token = t;
  }
  const double state = ratio_of((d.state - d.exact.state).norm(), state_tolerance);
  d.state_wrong = !(state <= 1.0);
  if (!d.state_wrong) d.right_ratio = std::max(d.right_ratio, state);
  if (state > d.worst_ratio) {
    d.worst_ratio = state;
    if (d.tokens.empty()) d.worst_token = -1;
  }
}

std::string where_text(const Resolved& r, const HeadDifference& d) {
  std::string text = fmt::format("sequence {}, head {}: ", d.sequence, d.head);
  if (d.tokens.empty()) return text + "the final state";
  const Index t = d.tokens.front();
  text += fmt::format("o from token {} on", t);
  if (!r.unchunked() && r.c.chunk > 0 && !r.form->whole && (!r.form->decodes || t < r.c.prefill)) {
    text += fmt::format(" (chunk {}, its token {})", t / r.c.chunk, t % r.c.chunk);
  }
  text += fmt::format(", {} of {} tokens: {}", d.tokens.size(), d.o.rows(), ranges_text(d.tokens));
  return text + (d.state_wrong ? "; and the final state" : "");
}

std::vector<HeadDifference> head_differences(const Resolved& r, const Family& family, const Batch& batch,
                                             const Outputs& outputs, const Path* path) {
  std::vector<HeadDifference> out;
  for (Index n = 0; n < batch.shape.sequences(); ++n) {
    for (Index h = 0; h < batch.shape.Hv; ++h)
      out.push_back(compared_head(r, family, batch, outputs, n, h, path));
  }
  return out;
}

std::string second_chunk_text(const std::vector<Index>& wrong, Index chunk, Index tokens) {
  if (wrong.empty() || wrong.front() < chunk || wrong.front() >= 2 * chunk) return "";
  if (wrong.back() < std::min(2 * chunk, tokens) - 1) return "";
  return fmt::format(
      "from the second chunk on: the first chunk is right; errors begin at token "
      "{}, {}",
      wrong.front(),
      wrong.front() == chunk ? "the first of the second chunk"
                             : fmt::format("token {} of the second chunk", wrong.front() - chunk));
}

std::string sequences_text(const std::vector<Index>& wrong, const std::vector<Index>& all) {
  if (wrong.empty() || wrong.size() >= all.size()) return "";
  if (wrong.size() == 1) return fmt::format("only sequence {} of {}", wrong[0], all.back() + 1);
  // All sequences with tokens are wrong from one of them on.
  const auto first = std::ranges::find(all, wrong.front());
  if (std::ranges::equal(wrong, std::ranges::subrange(first, all.end())))
    return first - all.begin() == 1 ? std::string("every sequence but the first")
                                    : fmt::format("only from sequence {} on", wrong.front());
  if (wrong.size() == all.size() - 1) {
    for (const Index n : all) {
      if (!std::ranges::binary_search(wrong, n)) return fmt::format("every sequence but {}", n);
    }
  }
  return fmt::format("only sequences {} of {}", ranges_text(wrong), all.back() + 1);
}

std::string ranges_text(const std::vector<Index>& sorted) {
  std::string out;
  int pieces = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t j = i;
    while (j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1) ++j;
    if (++pieces > 4) return out + ", ...";
    out += fmt::format("{}{}", out.empty() ? "" : ", ", sorted[i]);
    if (j > i) out += fmt::format("{}{}", j == i + 1 ? ", " : "..", sorted[j]);
    i = j + 1;
  }
  return out;
}

std::vector<std::string> place_patterns(const Resolved& r, const std::vector<HeadDifference>& heads) {
  std::vector<std::string> out;
  if (!stand_out(heads)) return out;
  token_patterns(r, heads, out);
  const std::vector<Index> sequences = wrong_of(heads, [](const HeadDifference& d) { return d.sequence; });
  const std::vector<Index> wrong_heads = wrong_of(heads, [](const HeadDifference& d) { return d.head; });
  std::set<Index> with_tokens;  // sequences without tokens could only have wrong states
  for (const HeadDifference& d : heads) {
    if (d.o.rows() > 0) with_tokens.insert(d.sequence);
  }
  if (std::string text = sequences_text(sequences, {with_tokens.begin(), with_tokens.end()}); !text.empty())
    out.push_back(std::move(text));
  if (r.c.Hv > 1 && std::ssize(wrong_heads) < r.c.Hv) {
    std::vector<Index> differing;
    for (Index h = 0; h < r.c.Hv; ++h) {
      if (key_head(h, r.c.Hk, r.c.Hv, HeadMap::tiled) != key_head(h, r.c.Hk, r.c.Hv, HeadMap::interleaved)) {
        differing.push_back(h);
      }
    }
    if (!differing.empty() && differing == wrong_heads) {
      out.push_back("exactly the heads whose key head differs between the tiled and the interleaved map");
    } else if (wrong_heads.size() == 1) {
      out.push_back(fmt::format("only head {} of {}", wrong_heads[0], r.c.Hv));
    } else if (!wrong_heads.empty()) {
      out.push_back(fmt::format("only heads {} of {}", ranges_text(wrong_heads), r.c.Hv));
    }
  }
  const std::vector<Index> channels = channels_of(heads);
  if (!channels.empty() && std::ssize(channels) < r.c.dv) {
    std::vector<double> expected, actual;
    for (const HeadDifference& d : heads) {
      for (const Index t : d.tokens) {
        for (const Index j : channels) expected.push_back(d.exact.o(t, j)), actual.push_back(d.o(t, j));
      }
    }
    const Index size = std::ssize(expected);
    const double factor = constant_factor(Eigen::Map<Matrix<double>>(expected.data(), 1, size),
                                          Eigen::Map<Matrix<double>>(actual.data(), 1, size));
    out.push_back(fmt::format("only channel(s) {} of {}", ranges_text(channels), r.c.dv));
    if (!std::isnan(factor)) out.back() += fmt::format(": the right values there times {:.6g}", factor);
  }
  const bool rows_wrong =
      std::any_of(heads.begin(), heads.end(), [](const auto& d) { return !d.tokens.empty(); });
  if (!rows_wrong && !wrong_heads.empty()) out.push_back("only the final state: every row of o is right");
  const bool state_right =
      std::none_of(heads.begin(), heads.end(), [](const auto& d) { return d.state_wrong; });
  if (rows_wrong && state_right && r.c.final_state != "none")
    out.push_back("only o: the final state is right");
  return out;
}

bool sums_gates(const Resolved& r) {
  return r.form->chunked && !r.unchunked() && r.system->has(Property::decay);
}

double constant_factor(const Matrix<double>& expected, const Matrix<double>& actual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double square = 0.0, product = 0.0, whole = 0.0, size = 0.0;
  Index finite = 0;
  const auto each = [&](auto&& visit) {
    for (Index i = 0; i < expected.size(); ++i) {
      if (std::isfinite(actual.data()[i]) && std::isfinite(expected.data()[i]))
        visit(expected.data()[i], actual.data()[i]);
    }
  };
  each([&](double e, double a) {
    ++finite;
    square += e * e, product += e * a, whole += (a - e) * (a - e), size += a * a;
  });
  if (finite < 2 || 2 * finite < expected.size() || square == 0.0 || size == 0.0) return nan;
  const double factor = product / square;
  double rest = 0.0;
  each([&](double e, double a) { rest += (a - factor * e) * (a - factor * e); });
  return std::sqrt(rest) <= (1.0 - kExplainedShare) * std::sqrt(whole) ? factor : nan;
}

std::vector<std::string> factor_patterns(const std::vector<HeadDifference>& heads, bool everywhere,
                                         bool summed) {
  constexpr double kNearOne = 1e-3;  // fp32 sums of a chunk's g of up to -1000 differ by less
  std::vector<std::string> out;
  for (const bool state : {false, true}) {
    std::vector<double> expected, actual;
    double least = kInfinity, most = -kInfinity;
    Index own = 0, count = 0;
    const auto take = [&](const Matrix<double>& e, const Matrix<double>& a) {
      expected.insert(expected.end(), e.data(), e.data() + e.size());
      actual.insert(actual.end(), a.data(), a.data() + a.size());
    };
    const auto factor_from = [&](std::size_t begin) {
      const Index size = std::ssize(expected) - static_cast<Index>(begin);
      return constant_factor(Eigen::Map<Matrix<double>>(expected.data() + begin, 1, size),
                             Eigen::Map<Matrix<double>>(actual.data() + begin, 1, size));
    };
    for (const HeadDifference& d : heads) {
      const std::size_t begin = expected.size();
      if (state && (everywhere || d.state_wrong)) take(d.exact.state, d.state);
      if (!state && everywhere) take(d.exact.o, d.o);
      for (const Index t : d.tokens) {
        if (!state && !everywhere) take(d.exact.o.row(t), d.o.row(t));
      }
      if (expected.size() == begin) continue;
      ++count;
      const double factor = factor_from(begin);
      if (std::isnan(factor)) continue;
      ++own;
      least = std::min(least, factor), most = std::max(most, factor);
    }
    if (count == 0) continue;
    const std::string_view what = state        ? "the final state is the right one"
                                  : everywhere ? "o is the right one"
                                               : "the wrong rows of o are the right ones";
    const bool near_one = std::max(std::abs(least - 1.0), std::abs(most - 1.0)) < kNearOne;
    const std::string_view why =
        state && summed && near_one
            ? ": the decay to a chunk's end is from another sum of g than that of its tokens"
            : "";
    if (const double factor = factor_from(0); !std::isnan(factor)) {
      out.push_back(fmt::format("{} times {:.6g}{}", what, factor, why));
    } else if (own == count && count > 1) {
      out.push_back(fmt::format("in each head {} times a factor of its own, {:.6g} to {:.6g}{}", what, least,
                                most, why));
    }
  }
  return out;
}

namespace {

/// Returns true if each value is smaller in size than the right one by less than a unit in the last place,
/// some by well over half a unit, which rounding to nearest never does.
bool cut_off(const std::vector<double>& expected, const std::vector<double>& actual, Format format) {
  constexpr Index kFewest = 8;
  constexpr double kSlack = 0.05;  // units by which the kernel may have been off before
  const int fraction = format == Format::bf16 ? 7 : 10;
  Index over_half = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == 0.0 && expected[i] == 0.0) continue;
    if (!std::isnormal(static_cast<float>(actual[i])) || actual[i] != round_to(actual[i], format))
      return false;
    const double unit = std::ldexp(1.0, std::ilogb(actual[i]) - fraction);
    const double below = (expected[i] - actual[i]) / (actual[i] > 0.0 ? unit : -unit);
    if (below < -kSlack || below > 1.0 + kSlack) return false;
    if (below > 0.5 + kSlack) ++over_half;
  }
  return over_half >= kFewest;
}

}  // namespace

std::vector<std::string> value_patterns(const Resolved& r, const Outputs& outputs,
                                        const std::vector<HeadDifference>& heads) {
  std::vector<std::string> out;
  const auto never = [](const std::vector<float>& x) { return std::count_if(x.begin(), x.end(), poisoned); };
  const auto not_finite = [](const std::vector<float>& x) {
    return std::count_if(x.begin(), x.end(),
                         [](float v) { return !std::isfinite(v) && !poisoned(v) && !from_outside(v); });
  };
  const auto outside = [](const std::vector<float>& x) {
    return std::count_if(x.begin(), x.end(), from_outside);
  };
  for (const auto& [name, values] : {std::pair{"o", &outputs.o}, {"final_state", &outputs.final_state}}) {
    if (never(*values) > 0)
      out.push_back(fmt::format("{} element(s) of {} were never written", never(*values), name));
    if (outside(*values) > 0)
      out.push_back(fmt::format("{} element(s) of {} come from memory around a tensor, which the kernel read",
                                outside(*values), name));
    if (not_finite(*values) > 0)
      out.push_back(fmt::format("{} element(s) of {} are NaN or infinite", not_finite(*values), name));
  }
  bool zero_o = true, zero_state = true, transposed = r.c.dk == r.c.dv && r.c.dk > 1, bf16_o = true,
       bf16_state = true, right_in_bf16 = true;
  bool any = false;
  std::vector<double> expected, actual;
  for (const HeadDifference& d : heads) {
    if (!held_in_bf16(d.state)) bf16_state = false;
    if (d.o.size() > 0 && !held_in_bf16(d.o)) bf16_o = false;
    right_in_bf16 = right_in_bf16 && held_in_bf16(d.exact.state) && held_in_bf16(d.exact.o);
    if (!d.wrong()) continue;
    any = true;
    for (const Index t : d.tokens) {
      zero_o = zero_o && d.o.row(t).isZero(0);
      for (Index j = 0; j < d.o.cols(); ++j) expected.push_back(d.exact.o(t, j)), actual.push_back(d.o(t, j));
    }
    if (d.tokens.empty()) zero_o = false;
    zero_state = zero_state && d.state_wrong && d.state.isZero(0);
    const double whole = (d.state - d.exact.state).norm();
    transposed = transposed && d.state_wrong &&
                 (d.state.transpose() - d.exact.state).norm() <= (1.0 - kExplainedShare) * whole;
  }
  if (!any) return out;
  if (zero_o) out.push_back("the wrong rows of o are all zero");
  if (zero_state) out.push_back("the final state is all zero");
  if (transposed) out.push_back("the final state is the transpose of the right one");
  std::ranges::move(factor_patterns(heads, false, sums_gates(r)), std::back_inserter(out));
  if (right_in_bf16) return out;  // no rounding shows in integers and powers of two
  const Contract& contract = r.promised;
  if ((contract.output == Format::bf16 || contract.output == Format::fp16) &&
      cut_off(expected, actual, contract.output))
    out.push_back(
        fmt::format("the wrong rows of o are cut off to {}, towards zero: round to nearest, ties to even",
                    name_of(contract.output)));
  if (bf16_state && contract.state != Format::bf16) {
    // A single rounding at the end would not change o.
    out.push_back(fmt::format(
        "{}every value of the final state is a bf16 one, which the contract does not allow for{}",
        expected.empty() ? "" : "state kept in bf16: ", expected.empty() ? "" : ", and o is wrong with it"));
  }
  if (bf16_o && !heads.empty() && heads[0].o.size() >= 8 && contract.output != Format::bf16) {
    out.push_back("every value of o is a bf16 one, which the contract does not allow for");
  }
  return out;
}

}  // namespace samestate
