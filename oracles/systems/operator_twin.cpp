#include "oracles/systems/operator_twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "oracles/limits.h"
#include "oracles/numbers.h"
#include "oracles/systems/scalars.h"
#include "oracles/systems/twin_shares.h"

namespace samestate {
namespace {

SampledModel with(SampledModel model, const TwinVariant& variant) {
  model.skipped = &variant.skipped;
  model.softmax = variant.softmax;
  model.sums_stored = variant.sums_stored;
  return model;
}

/// True if every element equals the twin's.
bool identical(const TwinSubject& of, const Tensors<double>& twin, const Tensors<double>& actual) {
  return std::all_of(twin.begin(), twin.end(), [&](const auto& one) {
    const Matrix<double>& x = get(actual, one.first);
    return one.second.size() == 0 ||
           x == written(one.second, x, of.oracle.format(one.first, of.contract.output));
  });
}

struct Finding {
  double ratio = 0.0;
  double error = 0.0;
  double bound = 0.0;
  std::string output;
  Index row = -1;
  Index column = -1;
  bool elements = false;  ///< if false, shares of rows
  bool compared = false;
  bool same = true;
  Index rows = 0;                         ///< rows that equal the twin's
  std::map<std::string, double> outputs;  ///< the ratio of each output, if it is above 0
};

/// The findings under each of the twins that were tried.
class Blame {
 public:
  void add(const Finding& found, const TwinVariant& variant) { tried_.emplace_back(found, variant); }
  /// The nearest of those whose worst output is beyond its bound under every twin: another twin may sacrifice
  /// an output that is right to come nearer to one that is not. Null if each output is right under one of
  /// them.
  [[nodiscard]] const std::pair<Finding, TwinVariant>* nearest() const {
    const std::pair<Finding, TwinVariant>* nearest = nullptr;
    for (const auto& one : tried_) {
      const bool always = std::ranges::all_of(tried_, [&](const auto& other) {
        const auto ratio = other.first.outputs.find(one.first.output);
        return ratio != other.first.outputs.end() && ratio->second > 1.0;
      });
      if (always && (nearest == nullptr || one.first.ratio < nearest->first.ratio)) nearest = &one;
    }
    return nearest;
  }

 private:
  std::vector<std::pair<Finding, TwinVariant>> tried_;
};

/// Compares elements with the bound of a twin; those within it count as 0.
void judge_elements(const TwinSubject& of, const TwinBound& twin, const Tensors<double>& actual,
                    Finding& worst) {
  for (const auto& [name, t] : twin.value) {
    const Matrix<double>& x = get(actual, name);
    const Matrix<double>& slack = get(twin.slack, name);
    const Matrix<bool>& undecided = get(twin.undecided, name);
    const Matrix<double>& tolerance = get(of.oracle.tolerance, name);
    const Format format = of.oracle.format(name, of.contract.output);
    for (Index i = 0; i < t.rows(); ++i) {
      if (undecided(i, 0)) continue;
      for (Index j = 0; j < t.cols(); ++j) {
        if (!std::isfinite(t(i, j)) || !std::isfinite(slack(i, j))) continue;
        if (!std::isfinite(tolerance(i, j)) && of.oracle.may_overflow(name, i, j)) continue;
        worst.compared = true;
        if (std::abs(t(i, j)) + slack(i, j) < least_normal(format)) continue;
        const double bound = slack(i, j) + half_ulp(std::abs(t(i, j)) + slack(i, j), format) * (1.0 + 1e-12);
        const double error = std::isfinite(x(i, j)) ? std::abs(x(i, j) - t(i, j)) : kInfinity;
        const double ratio = error <= bound ? 0.0 : error / bound;
        if (ratio > 0.0) worst.outputs[name] = std::max(worst.outputs[name], ratio);
        if (!(ratio > worst.ratio)) continue;
        worst.ratio = ratio, worst.error = error, worst.bound = bound;
        worst.output = name, worst.row = i, worst.column = j, worst.elements = true;
      }
    }
  }
}

/// The largest share among `count` twins whose working precision is drawn, by output, each written in the
/// kernel's format: a state in fp32 shows roundings that one in 16 bits does not.
std::map<std::string, double> jittered(const TwinSubject& of, const TwinDistance& twin,
                                       const Tensors<double>& actual, std::uint64_t seed, int first,
                                       int count) {
  std::map<std::string, double> most;
  for (int n = first; n < first + count; ++n) {
    const SamplingScope scope(with(SampledModel::jitter(of.contract, seed, n), twin.variant));
    for (const auto& [name, x] : evaluate(of.op.stochastic, of.op, of.call, of.inputs, of.cuts)) {
      const Matrix<double> value =
          x.unaryExpr([](const Stochastic& e) { return round_to(e.value(), Format::fp32); });
      const Matrix<double> drawn =
          written(value, get(actual, name), of.oracle.format(name, of.contract.output));
      const Share share = share_of(of, name, drawn, get(twin.value, name));
      most[name] = std::max(most[name], share.mean);
    }
  }
  return most;
}

/// True if the rows of an output equal the twin's apart from single roundings. Those of undecided tokens may
/// differ; `rows` counts the equal ones.
bool same_rows(const TwinSubject& of, const std::string& name, const Matrix<double>& x,
               const Matrix<double>& t, Index& rows) {
  const Matrix<double>& y = get(of.oracle.exact, name);
  const Matrix<bool>& undecided = get(of.oracle.undecided, name);
  const Matrix<double> w = written_beside(t, x, of.oracle.format(name, of.contract.output));
  const Vector<double> rho = unshared(x, w, y);
  bool same = true;
  for (Index r = 0; r < y.rows(); ++r) {
    const double sigma = ((w.row(r) - y.row(r)).norm() + kErrorsOfFp32 * y.row(r).norm()) /
                         std::sqrt(static_cast<double>(y.cols()));
    const bool near = (x.row(r).array() == w.row(r).array()).all() ||
                      (rho(r) <= kOperatorTwinRow &&
                       (x.row(r) - w.row(r)).cwiseAbs().maxCoeff() <= kOperatorTwinElement * sigma);
    if (near) ++rows;
    same = same && (near || undecided(r, 0));
  }
  return same;
}

/// Compares shares of outputs with their limits, for which up to `looks` drawn twins in all are evaluated if
/// the smallest limit is exceeded.
void judge_shares(const TwinSubject& of, const TwinDistance& twin, const Tensors<double>& actual,
                  std::uint64_t seed, const JudgePolicy& policy, std::span<const int> looks, Finding& worst) {
  std::map<std::string, double> jitter;
  int asked = 0;
  for (const auto& [name, t] : twin.value) {
    const Matrix<double>& x = get(actual, name);
    if (t.size() == 0) continue;
    const Share share = share_of(of, name, x, t);
    worst.same = worst.same && share.mean <= kOperatorTwinSame && same_rows(of, name, x, t, worst.rows);
    // Rows with one or two elements give no shares, but ties that fell one way or the other.
    if (share.rows < kOperatorTwinLeast || !(share.elements >= kOperatorTwinLeast * kOperatorTwinLeast))
      continue;
    const double directions = directions_of(of, name, t);
    if (directions < kTwinDirections) continue;
    worst.compared = true;
    // A rounding that falls the other way is in all rows of a state's matrix, so the number of independent
    // rows is at most the number of directions.
    const double witnesses = std::min(static_cast<double>(share.rows), directions);
    const double least = std::max(kOperatorTwinShare, kOperatorTwinRows / witnesses);
    const auto limit = [&] { return std::max(least, kOperatorTwinSpread * jitter[name]); };
    for (const int count : looks) {
      if (share.mean <= limit() || asked >= count) continue;
      // If thirty twins are far away, the second look would take most of the time of a failure; the nearest
      // of them gets the third look.
      if (count == policy.twin_second && share.mean > kGrossExcess * limit()) continue;
      for (const auto& [output, most] : jittered(of, twin, actual, seed, asked, count - asked))
        jitter[output] = std::max(jitter[output], most);
      asked = count;
    }
    const double ratio = std::isfinite(share.mean) ? share.mean / limit() : kInfinity;
    worst.outputs[name] = std::max(worst.outputs[name], ratio);
    if (!(ratio > worst.ratio)) continue;
    worst.ratio = ratio, worst.error = share.mean, worst.bound = limit();
    worst.output = name, worst.row = share.worst, worst.column = -1, worst.elements = false;
  }
}

Finding judge_variant(const TwinSubject& of, const TwinDistance& twin, const Tensors<double>& actual,
                      std::uint64_t seed, const JudgePolicy& policy, std::span<const int> looks) {
  Finding worst;
  if (identical(of, twin.value, actual)) {
    worst.compared = true;
    worst.rows = 1;
    return worst;
  }
  judge_elements(of, twin_bound(of, twin.variant), actual, worst);
  worst.same = worst.ratio <= 1.0;
  if (worst.ratio <= 1.0) judge_shares(of, twin, actual, seed, policy, looks, worst);
  return worst;
}

}  // namespace

Tensors<double> twin_values(const TwinSubject& of, const TwinVariant& variant, SkippedPoints* met) {
  const SamplingScope scope(with(SampledModel::twin(of.contract), variant), met);
  Tensors<double> out;
  for (const auto& [name, x] : evaluate(of.op.stored, of.op, of.call, of.inputs, of.cuts))
    out.emplace(name, x.unaryExpr([](const Stored& e) { return e.value(); }));
  return out;
}

TwinBound twin_bound(const TwinSubject& of, const TwinVariant& variant) {
  RunningModel model = RunningModel::twin(of.contract);
  model.tiny *= of.op.late_factors;
  model.skipped = &variant.skipped;
  model.softmax = variant.softmax;
  model.sums_stored = variant.sums_stored;
  const RunningScope scope(model);
  TwinBound out;
  for (const auto& [name, x] : evaluate(of.op.running, of.op, of.call, of.inputs, of.cuts)) {
    out.value.emplace(name, x.unaryExpr([](const Running& e) { return e.value(); }));
    out.slack.emplace(name, x.unaryExpr([](const Running& e) { return e.error(); }));
    Matrix<bool> undecided = Matrix<bool>::Constant(x.rows(), 1, false);
    for (Index i = 0; i < x.rows(); ++i) {
      for (Index j = 0; j < x.cols(); ++j) undecided(i, 0) = undecided(i, 0) || x(i, j).undecided();
    }
    out.undecided.emplace(name, std::move(undecided));
  }
  return out;
}

TwinSearch::TwinSearch(const TwinSubject& of, const Tensors<double>& actual, const JudgePolicy& policy)
    : of_(of), actual_(actual), policy_(policy) {
  nearest_ = evaluate_variant({}, &met_);
}

TwinDistance TwinSearch::evaluate_variant(TwinVariant variant, SkippedPoints* met) {
  ++evaluated_;
  TwinDistance twin{std::move(variant), {}, 0.0, 0.0};
  twin.value = twin_values(of_, twin.variant, met);
  for (const auto& [name, t] : twin.value) {
    if (t.size() == 0) continue;
    const double share = share_of(of_, name, get(actual_, name), t).mean;
    twin.most = std::max(twin.most, share);
    twin.total += share;
  }
  return twin;
}

namespace {

/// True for twins with equal values, for example one that leaves out a point that rounds nothing here. Their
/// bounds may differ: a value that is a number of the format may not be one in a kernel whose fp32 sums miss
/// it, and the ties that can turn are elsewhere.
bool same_values(const TwinDistance& x, const TwinDistance& y) {
  return x.total == y.total &&
         std::equal(x.value.begin(), x.value.end(), y.value.begin(), y.value.end(),
                    [](const auto& one, const auto& other) { return one.second == other.second; });
}

}  // namespace

bool TwinSearch::stores_few(const std::function<bool(const TwinDistance&)>& accepts, int most,
                            std::vector<TwinDistance>& all) {
  TwinVariant variant;
  variant.skipped = met_;
  variant.skipped.sort();
  TwinDistance from = evaluate_variant(std::move(variant), nullptr);
  for (bool nearer = true; nearer;) {
    nearer = false;
    const TwinVariant before = from.variant;
    for (const Point& point : before.skipped.points) {
      if (evaluated_ >= most) return false;
      TwinVariant stored = before;
      std::erase(stored.skipped.points, point);
      TwinDistance twin = evaluate_variant(std::move(stored), nullptr);
      if (twin.most <= kOperatorTwinSame && accepts(twin)) return true;
      if (!(twin.total < from.total)) continue;
      from = std::move(twin);
      nearer = true;
    }
    if (nearer) all.push_back(from);
  }
  return false;
}

void TwinSearch::run(const std::function<bool(const TwinDistance&)>& accepts) {
  if (of_.known != nullptr) {
    for (const TwinVariant& variant : *of_.known) {
      if (accepts(variant == nearest_.variant ? nearest_ : evaluate_variant(variant, nullptr))) return;
    }
  }
  if (nearest_.most <= kOperatorTwinSame && accepts(nearest_)) return;
  const std::vector<SkippedPoints> groups = moves();
  const auto nearer = [](const TwinDistance& x, const TwinDistance& y) { return x.total < y.total; };
  // Roundings are independent, so each right change brings the twin nearer on its own: the best of one round
  // start the next.
  const auto beam_size = static_cast<std::size_t>(policy_.twin_beam);
  const auto most_offered = static_cast<std::size_t>(policy_.twin_offered);
  const std::vector<std::function<void(TwinVariant&)>> changes = orders();
  std::vector<TwinDistance> beam{nearest_};
  std::vector<TwinDistance> all{nearest_};
  std::set<std::string> known{nearest_.variant.words()};
  // Parts come with their own order; other points that such a kernel leaves out are added in the next round.
  std::vector<TwinVariant> parts = in_parts();
  while (!beam.empty()) {
    std::vector<TwinDistance> next;
    for (const TwinDistance& from : beam) {
      std::vector<TwinVariant> variants;
      for (const SkippedPoints& group : groups) {
        variants.push_back(from.variant);
        for (const Point& point : group.points) variants.back().skipped.add(point);
      }
      for (const auto& change : changes) {
        variants.push_back(from.variant);
        change(variants.back());
      }
      std::ranges::move(std::exchange(parts, {}), std::back_inserter(variants));
      for (TwinVariant& variant : variants) {
        variant.skipped.sort();
        if (evaluated_ >= policy_.twin_variants || !known.insert(variant.words()).second) continue;
        TwinDistance twin = evaluate_variant(std::move(variant), nullptr);
        if (twin.most <= kOperatorTwinSame && accepts(twin)) return;
        if (twin.total < from.total) next.push_back(twin);
        all.push_back(std::move(twin));
      }
    }
    std::stable_sort(next.begin(), next.end(), nearer);
    if (next.size() > beam_size) next.resize(beam_size);
    beam = std::move(next);
  }
  if (stores_few(accepts, policy_.twin_variants, all)) return;
  // For a kernel that leaves out several points, none alone need come nearer: a value may be rounded before
  // one that is not.
  for (TwinVariant& variant : together()) {
    if (evaluated_ >= policy_.twin_variants || !known.insert(variant.words()).second) continue;
    TwinDistance twin = evaluate_variant(std::move(variant), nullptr);
    if (twin.most <= kOperatorTwinSame && accepts(twin)) return;
    all.push_back(std::move(twin));
  }
  // If one tie of a small case is turned, another twin may be nearer than the right one.
  const auto round = std::min(all.size(), groups.size() + 3);
  std::stable_sort(all.begin() + static_cast<std::ptrdiff_t>(round), all.end(), nearer);
  std::vector<TwinDistance> offered;
  std::size_t others = 0;
  std::size_t again = 0;
  for (std::size_t i = 0; i < all.size() && others < most_offered; ++i) {
    const bool known_values = std::any_of(
        offered.begin(), offered.end(), [&](const TwinDistance& twin) { return same_values(twin, all[i]); });
    if (known_values && i >= round && ++again > most_offered) continue;
    offered.push_back(std::move(all[i]));
    others += i < round || known_values ? 0 : 1;
  }
  std::stable_sort(offered.begin(), offered.end(), nearer);
  nearest_ = offered.front();
  for (const TwinDistance& twin : offered) {
    if (accepts(twin)) return;
  }
}

TwinJudgement judge_operator_twin(const TwinSubject& of, const Tensors<double>& actual, std::uint64_t seed,
                                  const JudgePolicy& policy) {
  const std::array looks{policy.twin_first, policy.twin_second, policy.twin_third};
  TwinSearch search(of, actual, policy);
  struct Best {
    Finding finding;
    TwinDistance twin;
  };
  Best best;
  Best shares;  // among those within whose bounds all elements are
  Blame blame;
  search.run([&](const TwinDistance& twin) {
    const Finding found = judge_variant(of, twin, actual, seed, policy, std::span(looks).first(2));
    // If it is far from the kernel and undecided throughout, another sequence's twin would excuse anything.
    const bool borrowed = of.known != nullptr && twin.most > kOperatorTwinSame &&
                          std::ranges::find(*of.known, twin.variant) != of.known->end();
    if (borrowed && !found.compared) return false;
    blame.add(found, twin.variant);
    if (best.twin.value.empty() || found.ratio < best.finding.ratio) best = {found, twin};
    if (!found.elements && (shares.twin.value.empty() || found.ratio < shares.finding.ratio))
      shares = {found, twin};
    return best.finding.ratio <= 1.0;
  });
  // For example, if two ties of one value each show in all later rows: one draw in about a hundred turns
  // both. Another twin, with which no element agrees, may then be nearer.
  if (best.finding.ratio > 1.0 && !shares.twin.value.empty()) {
    shares.finding = judge_variant(of, shares.twin, actual, seed, policy, looks);
    if (!best.finding.elements || shares.finding.ratio <= 1.0) best = shares;
  }
  const auto* blamed = best.finding.ratio > 1.0 ? blame.nearest() : nullptr;
  const Finding& found = blamed != nullptr ? blamed->first : best.finding;
  if (of.known != nullptr && found.compared && found.ratio <= 1.0 && found.same) {
    std::erase(*of.known, best.twin.variant);
    of.known->insert(of.known->begin(), best.twin.variant);
    if (std::ssize(*of.known) > policy.twins_known) of.known->pop_back();
  }
  const std::string words = (blamed != nullptr ? blamed->second : best.twin.variant).words();
  TwinJudgement out;
  Judgement& j = out.judgement;
  j.ratio = j.twin_ratio = found.ratio;
  j.error = found.error;
  j.bound = found.bound;
  j.worst = of.oracle.place(found.output, found.row, found.column);
  if (found.row >= 0 && found.column >= 0) {
    j.expected = get(of.oracle.exact, found.output)(found.row, found.column);
    j.actual = get(actual, found.output)(found.row, found.column);
  }
  out.same = found.compared && found.same && found.rows > 0 &&
             std::any_of(of.oracle.exact.begin(), of.oracle.exact.end(),
                         [](const auto& one) { return (one.second.array() != 0.0).any(); });
  if (found.compared && found.ratio <= 1.0) out.softmax = best.twin.variant.softmax;
  j.gate = found.elements ? "twin element" : "twin share";
  if (found.ratio > 1.0) {
    j.verdict = Verdict::fail;
    j.reason = fmt::format(
        "output {}, nearest twin {}: {}", found.output, words.empty() ? "that of all points" : words,
        found.elements ? "an element beyond what fp32 makes of the roundings that the contract declares"
                       : "errors that the roundings which the contract declares do not make");
  } else if (found.compared) {
    j.verdict = Verdict::pass;
    j.reason = words;
  } else {
    j.verdict = Verdict::vacuous;
    j.reason = "nothing that the twin knows";
  }
  return out;
}

}  // namespace samestate
