#include "harness/diagnose/diagnose.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "harness/run/family_run.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// The contents of the calls: every value is a small integer times a power of two, which every format holds.
class Contents {
  /// Number of nonzero channels of q, k and the state: the few tokens of a call write to most of them, and
  /// norms stay equally small with more channels.
  static constexpr std::int64_t kUsed = 4;

 public:
  explicit Contents(std::uint64_t seed) : bits_(seed) {}

  float integer(int least, int most) {
    return static_cast<float>(least +
                              static_cast<int>(bits_() % static_cast<std::uint64_t>(most - least + 1)));
  }
  float one_of(std::initializer_list<float> values) { return *(values.begin() + bits_() % values.size()); }

  Batch batch(BatchShape shape, const Family& family) {
    Batch b;
    b.shape = std::move(shape);
    const BatchShape& s = b.shape;
    const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    for (std::int64_t row = 0; row < s.B * s.T * s.Hk; ++row) {
      // Tokens with a small norm show an epsilon and its place.
      const std::int64_t t = row / s.Hk % s.T % 6;
      const float small_k = t == 2 ? 0x1p-10F : t == 4 ? 0x1p-20F : 1.0F;
      const float small_q = t == 3 ? 0x1p-10F : 1.0F;
      for (std::int64_t d = 0; d < s.dk; ++d) {
        const bool used = d < kUsed;
        b.q.push_back(!used ? 0.0F : small_q * (d == 1 ? one_of({-2, -1, 1, 2}) : integer(-2, 2)));
        b.k.push_back(!used ? 0.0F : small_k * 0.5F * (d == 0 ? one_of({-1, 1}) : integer(-1, 1)));
      }
    }
    for (std::size_t i = 0; i < size(s.B * s.T * s.Hv * s.dv); ++i) b.v.push_back(integer(-3, 3));
    for (std::size_t i = 0; i < size(s.B * s.T * s.Hv); ++i) {
      if (family.gated) b.g.push_back(-one_of({0.25F, 0.5F, 1.0F}));
      if (family.delta) b.beta.push_back(one_of({0.25F, 0.5F, 0.75F}));
    }
    for (std::int64_t row = 0; s.initial_state && row < s.sequences() * s.Hv * s.dk; ++row) {
      for (std::int64_t d = 0; d < s.dv; ++d)
        b.initial_state.push_back(row % s.dk < kUsed ? integer(-2, 2) : 0.0F);
    }
    return b;
  }

 private:
  std::mt19937_64 bits_;
};

Returned returned(const Outputs& outputs) {
  return {{outputs.o.begin(), outputs.o.end()}, {outputs.final_state.begin(), outputs.final_state.end()}};
}

/// Adds the sum of squares of the differences relative to the expected RMS, and their number. Where neither
/// value is finite they agree, and the position is left out: it is a quotient whose divisor is zero.
void add_distance(const std::vector<double>& expected, const std::vector<double>& actual, double& sum,
                  double& count) {
  double size = 0.0, finite = 0.0;
  for (const double x : expected) {
    if (std::isfinite(x)) size += x * x, finite += 1.0;
  }
  size = std::max(size / std::max(1.0, finite), 1e-12);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i]) && !std::isfinite(actual[i])) continue;
    const double d = actual[i] - expected[i];
    sum += std::isfinite(d) ? std::min(d * d / size, 1e6) : 1e6;
    count += 1.0;
  }
}

/// Returns what one head of one sequence of a one-token call gives, o before the state.
Vector<double> of_head(const Returned& all, const BatchShape& s, std::int64_t block) {
  Vector<double> out(s.dv + s.dk * s.dv);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const bool o = i < s.dv;
    out(i) = (o ? all.o : all.final_state)[static_cast<std::size_t>(o ? block * s.dv + i
                                                                      : block * s.dk * s.dv + i - s.dv)];
  }
  return out;
}

/// Measures how far strong decays are off, relative to each head's own size; a result that became zero
/// because it is too small for the format is right.
struct StrongDecays {
  const Batch& call;
  const Family& family;
  Returned actual;

  /// Returns the error of the worst head, relative; with `logarithms`, the sum over all heads of the squared
  /// logarithms of the ratios of sizes.
  [[nodiscard]] double off(Reading reading, double limit, bool logarithms) const {
    reading.least = limit;
    const Returned expected = evaluate(call, family, reading);
    double worst = 0.0, sum = 0.0;
    for (std::int64_t block = 0; block < call.shape.B * call.shape.Hv; ++block) {
      const Vector<double> x = of_head(actual, call.shape, block), y = of_head(expected, call.shape, block);
      if (x.isZero(0)) continue;
      if (!x.allFinite()) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, (x - y).norm() / x.norm());
      const double ratio = std::log(x.norm() / y.norm());
      sum += ratio * ratio;
    }
    return logarithms ? sum : worst;
  }
};

/// Tests whether a limit on the exponents explains the results of strong decays.
void look_for_limit(FoundReading& of, const StrongDecays& strong, double& distance) {
  Reading reading;
  for (const Deviation* d : of.deviations) d->apply(reading);
  distance = strong.off(reading, kNoLimit, false);
  if (distance < kFits) return;
  const double limit = fitted_limit([&](double x) { return strong.off(reading, x, true); });
  if (const double with = strong.off(reading, limit, false); with < kFits) of.limit = limit, distance = with;
}

/// Returns the case whose line would describe the call.
Case case_of(const BatchShape& s, const KernelRow& kernel) {
  Case c = kernel.system->standard();
  c.kernel = kernel.name, c.form = kernel.form;
  c.B = s.B, c.T = s.T, c.Hk = s.Hk, c.Hv = s.Hv, c.dk = s.dk, c.dv = s.dv;
  c.heads = s.head_map, c.l2norm = s.l2norm, c.scale = s.scale;
  c.state = s.initial_state ? "random" : "none";
  if (!s.offsets.empty()) {
    c.form = "packed";
    for (std::size_t i = 0; i + 1 < s.offsets.size(); ++i)
      c.lengths.push_back(s.offsets[i + 1] - s.offsets[i]);
  }
  const CaseForm* form = kernel.system->form(kernel.form);
  c.chunk = form != nullptr && form->chunked ? 64 : 0;
  return c;
}

/// Returns the shape of the case; if the case is packed, its sequences have the same shares of the tokens as
/// those of `of`.
BatchShape shape_of(const Case& c, BatchShape of) {
  if (!of.offsets.empty() && c.T != of.T) {
    const std::int64_t first = c.T % 2 == 0 ? c.T / 2 : c.T;
    of.offsets =
        c.T >= 32 ? std::vector<std::int64_t>{0, first, first, c.T} : std::vector<std::int64_t>{0, c.T};
  }
  of.B = c.B, of.T = c.T, of.dk = c.dk, of.dv = c.dv;
  of.Hk = c.Hk, of.Hv = c.Hv % c.Hk == 0 ? c.Hv : c.Hk;
  of.initial_state = c.state != "none";
  return of;
}

/// Returns the nearest shape that lies inside both limits, and stores in `of` the first contract of the row
/// for which it does.
BatchShape inside(BatchShape shape, const KernelRow& kernel, const DeclaredLimits& further,
                  DiagnosticCall& of) {
  const Case own = case_of(shape, kernel);
  const auto hold = [&](const Case& c) { return kernel.limits.hold(c) && further.hold(c); };
  // The call keeps its own scale, map and norm, since they are its purpose: if a limit excludes them, the
  // call stays outside.
  for (const bool settings : {true, false}) {
    for (const std::string& name : kernel.contracts) {
      for (const bool state : {true, false}) {
        Case c = own;
        c.contract = name;
        if (!state) c.state = "none";
        if (!settings) c.scale.reset(), c.l2norm = false;
        BatchShape moved = shape_of(further.nearest(kernel.limits.nearest(c)), shape);
        Case now = case_of(moved, kernel);
        now.contract = name;
        if (!settings) now.scale.reset(), now.l2norm = false;
        now.chunk = further.nearest(kernel.limits.nearest(now)).chunk;
        if (!hold(now)) continue;
        of.contract = name, of.outside = !settings;
        return moved;
      }
    }
  }
  of.contract = kernel.contracts.front(), of.outside = true;
  return shape;
}

/// Returns the calls; `fit` adapts each one's shape from the shape that distinguishes most readings.
std::vector<DiagnosticCall> calls_of(const Family& family,
                                     const std::function<BatchShape(BatchShape, DiagnosticCall& of)>& fit) {
  constexpr double kScale = 0.25;  // neither 1 nor 4^-1/2
  Contents contents(7);
  const BatchShape dense{2, 6, 2, 4, 4, 4, {}, HeadMap::interleaved, kScale, false, true};
  BatchShape normalised = dense;
  normalised.l2norm = true;
  const BatchShape packed{1, 6, 2, 4, 4, 4, {0, 2, 2, 6}, HeadMap::interleaved, kScale, false, true};
  // There are as many tokens as heads, so that the axes may be exchanged; a scale of 0 is not the default.
  const BatchShape square{2, 4, 4, 4, 4, 4, {}, HeadMap::interleaved, 0.0, false, true};
  std::vector<DiagnosticCall> out;
  const auto add = [&](const char* what, const BatchShape& shape) {
    DiagnosticCall call;
    call.what = what;
    call.batch = contents.batch(fit(shape, call), family);
    out.push_back(std::move(call));
  };
  add("dense", dense);
  add("normalised", normalised);
  add("packed", packed);
  add("square", square);
  if (family.gated) {
    constexpr std::array kExponents{-1.0F, -4.0F, -8.0F, -60.0F};
    BatchShape token = dense;
    token.T = 1;
    add("strong decays", token);
    DiagnosticCall& strong = out.back();
    strong.of_limits = true;
    std::ranges::fill(strong.batch.v, 0.0F);
    for (std::size_t i = 0; i < strong.batch.g.size(); ++i) strong.batch.g[i] = kExponents[i % 4];
    // It is read as a single token that follows a state.
    if (strong.batch.shape.T != 1 || !strong.batch.shape.initial_state) out.pop_back();
  }
  return out;
}

}  // namespace

std::vector<DiagnosticCall> diagnostic_calls(const Family& family, const KernelRow& kernel,
                                             const DeclaredLimits& further) {
  std::vector<DiagnosticCall> out = calls_of(family, [&](BatchShape shape, DiagnosticCall& of) {
    return inside(std::move(shape), kernel, further, of);
  });
  if (!kernel.given) return out;
  const Given declared = kernel.given(contract_named(kernel.contracts.front()));
  for (DiagnosticCall& call : out) {
    call.batch.shape.given.norm = declared.norm;
    call.batch.shape.given.norm_epsilon = declared.norm_epsilon;
  }
  return out;
}

std::vector<DiagnosticCall> diagnostic_calls(const Family& family) {
  return calls_of(family, [](BatchShape shape, DiagnosticCall&) { return shape; });
}

double distance(const std::vector<Returned>& expected, const std::vector<Returned>& actual) {
  double sum = 0.0, count = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    add_distance(expected[i].o, actual[i].o, sum, count);
    add_distance(expected[i].final_state, actual[i].final_state, sum, count);
  }
  return count > 0 ? std::sqrt(sum / count) : 0.0;
}

Diagnosis diagnose(const Family& family, const std::vector<DiagnosticCall>& calls,
                   const std::vector<ProbeRun>& runs) {
  Diagnosis out;
  std::vector<const Batch*> ran;
  std::vector<Returned> actual;
  std::optional<StrongDecays> strong;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (runs[i].refused.empty() && calls[i].of_limits) {
      strong.emplace(calls[i].batch, family, returned(runs[i].outputs));
    } else if (runs[i].refused.empty()) {
      ran.push_back(&calls[i].batch);
      actual.push_back(returned(runs[i].outputs));
    } else {
      out.refused.push_back(calls[i].what + ": " + runs[i].refused);
    }
  }
  if (ran.empty()) {
    out.nothing_ran = true;
    return out;
  }
  out.nearest.distance = std::numeric_limits<double>::infinity();
  double values = 0.0;
  for (const Returned& one : actual) values += static_cast<double>(one.o.size() + one.final_state.size());
  const auto look = [&](const std::vector<const Deviation*>& of, std::vector<FoundReading>& into) {
    Reading reading;
    for (const Deviation* d : of) d->apply(reading);
    // Later calls are evaluated only while the distance may still be small.
    double sum = 0.0, count = 0.0;
    const double near = std::max(kFits, out.nearest.distance);
    for (std::size_t i = 0; i < ran.size(); ++i) {
      const Returned now = evaluate(*ran[i], family, reading);
      add_distance(now.o, actual[i].o, sum, count);
      add_distance(now.final_state, actual[i].final_state, sum, count);
      if (std::sqrt(sum / values) > near) return;
    }
    if (count == 0.0) return;
    const FoundReading finding{of, std::sqrt(sum / count)};
    if (finding.distance < out.nearest.distance) out.nearest = finding;
    if (finding.distance < kFits) into.push_back(finding);
  };
  // Take the fewest deviations that explain it, and among those the nearest and whatever is equally near.
  const std::vector<const Deviation*> all = deviations_of(family, ran.front()->shape.given);
  std::vector<std::vector<std::vector<const Deviation*>>> sets{{{}}, {}, {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    sets[1].push_back({all[i]});
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (all[i]->aspect != all[j]->aspect) sets[2].push_back({all[i], all[j]});
    }
  }
  for (std::size_t count = 0; count <= kMostConventions; ++count) {
    const auto level = count < sets.size() ? std::move(sets[count]) : conventions_by(all, count);
    std::vector<FoundReading> found;
    for (const auto& of : level) look(of, found);
    if (found.empty()) continue;
    const auto nearer = [](const FoundReading& a, const FoundReading& b) { return a.distance < b.distance; };
    std::stable_sort(found.begin(), found.end(), nearer);
    constexpr double kAsNear = 3.0;
    for (const FoundReading& f : found) {
      if (f.distance <= kAsNear * found.front().distance + 1e-12) out.fits.push_back(f);
    }
    for (FoundReading& f : out.fits) {
      double distance = 0.0;
      if (strong) look_for_limit(f, *strong, distance);
      if (&f == &out.fits.front()) out.strong_distance = distance;
    }
    return out;
  }
  return out;
}

std::vector<std::vector<const Deviation*>> conventions_by(const std::vector<const Deviation*>& all,
                                                          std::size_t count) {
  std::vector<std::vector<const Deviation*>> sets{{}};
  for (std::size_t size = 0; size < count; ++size) {
    std::vector<std::vector<const Deviation*>> larger;
    for (const std::vector<const Deviation*>& set : sets) {
      const auto last = set.empty() ? all.begin() : std::find(all.begin(), all.end(), set.back()) + 1;
      for (auto next = last; next != all.end(); ++next) {
        const auto same_aspect = [&](const Deviation* d) { return d->aspect == (*next)->aspect; };
        if ((*next)->declare.empty() || std::ranges::any_of(set, same_aspect)) continue;
        larger.push_back(set);
        larger.back().push_back(*next);
      }
    }
    sets = std::move(larger);
  }
  return sets;
}

ProbeRun run_diagnostic(const KernelRow& kernel, const DiagnosticCall& call, const DeclaredLimits& further) {
  KernelChoice choice;
  choice.named = &kernel;
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  (chunked ? choice.chunked : choice.unchunked) = &kernel;
  Case c = kernel.system->standard();
  c.chunk = 64;
  const Index chunk = chunked ? further.nearest(kernel.limits.nearest(std::move(c))).chunk : 0;
  const std::string& contract = call.contract.empty() ? kernel.contracts.front() : call.contract;
  ProbeRun out;
  try {
    out.outputs =
        run_kernel(choice, call.batch, whole(call.batch.shape.T, chunk), contract_named(contract), {});
  } catch (const Unavailable& refusal) {
    out.refused = refusal.what();
    out.refusal = refusal.kind == Outcome::Kind::unsupported;
  } catch (const ThrewElsewhere& thrown) {
    out.refused = std::string("the kernel threw: ") + thrown.what();
    out.refusal = thrown.refusal;
  }
  return out;
}

}  // namespace samestate
