#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "harness/explain/explain.h"
#include "harness/explain/explain_head.h"
#include "harness/explain/reading.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/batch_edit.h"

namespace samestate {
namespace {

using Run = Trajectory<double>;

/// The equation with one mistake, for one head; empty if the mistake changes nothing in this case.
struct Mistake {
  std::string name;
  std::function<std::optional<Run>(Index n, Index h)> run;
};

/// Returns the limit on exponents that fits the values of the heads best.
Clip best_clip(const Family& family, const Batch& batch, const std::vector<HeadDifference>& heads,
               Index chunk) {
  // Only some of many heads, and the first tokens of a long sequence, are evaluated, since that happens some
  // seventy times.
  constexpr double kWork = 2e6;
  const double size = static_cast<double>(batch.shape.dk * batch.shape.dv);
  const auto most = 1 + static_cast<Index>(kWork / std::max(1.0, size));
  std::vector<std::pair<Sequence<double>, const HeadDifference*>> looked;
  Index taken = 0;
  for (const HeadDifference& d : heads) {
    if (taken >= most) break;
    const Sequence<double> whole = sequence_of(batch, d.sequence, d.head);
    const Index tokens = std::min(whole.tokens(), most - taken);
    looked.emplace_back(whole.slice(0, tokens, whole.initial_state), &d);
    taken += tokens;
  }
  const auto rest = [&](double least) {
    double sum = 0.0;
    for (const auto& [sequence, d] : looked) {
      Sequence<double> x = sequence;
      clip(x.g, {least, chunk});
      sum += (d->o.topRows(x.tokens()) - family.recurrent(x).o).squaredNorm();
    }
    return sum;
  };
  return {fitted_limit(rest), chunk};
}

/// A token with a logarithm of the decay below this forgets everything, as alpha = 0 does.
constexpr double kForgets = -1e6;

class Equation {
 public:
  Equation(const Resolved& r, const Family& family, const Batch& batch)
      : r_(r), c_(r.c), batch_(batch), family_(family) {}

  /// Returns limits on exponents, if the system has any exponents, as the values of `heads` suggest them.
  [[nodiscard]] std::vector<Mistake> clipped(const std::vector<HeadDifference>& heads) {
    if (family_.gated) {
      const auto add_clip = [&](Index chunk) {
        const Clip by = best_clip(family_, batch_, heads, chunk);
        edited(clip_text(by), [by](auto& x) { clip(x.g, by); });
      };
      add_clip(0);
      if (c_.chunk > 0 && !r_.unchunked()) add_clip(c_.chunk);
    }
    return std::move(list_);
  }

  [[nodiscard]] std::vector<Mistake> mistakes() {
    readings();
    settings();
    states();
    gates();
    structure();
    return std::move(list_);
  }

 private:
  using Edit = std::function<void(Sequence<double>&)>;

  void add(std::string name, std::function<std::optional<Run>(Index, Index)> run) {
    list_.push_back({std::move(name), std::move(run)});
  }
  void edited(std::string name, Edit edit) {
    add(std::move(name), [this, edit](Index n, Index h) {
      Sequence<double> x = sequence_of(batch_, n, h);
      edit(x);
      return family_.recurrent(x);
    });
  }
  /// Tries the ways in which the call may have been read, from the list of `samestate diagnose`. A large
  /// batch is tried one sequence at a time, without the readings that need other sequences.
  void readings() {
    const BatchShape& s = batch_.shape;
    constexpr double kWhole = 4e6;
    const bool whole = static_cast<double>(s.B * s.T * s.Hv) * static_cast<double>(s.dk * s.dv) <= kWhole;
    for (const Deviation* d : deviations_of(family_, batch_.shape.given)) {
      const bool needs_others = d->aspect == "start" || d->aspect == "sequences" || d->aspect == "layout";
      if (!whole && needs_others && d->name != "the initial state is ignored") continue;
      Reading reading;
      d->apply(reading);
      add(std::string(d->name),
          [this, whole, reading, of = std::optional<Index>(), read = Batch(), returned = Outputs()](
              Index n, Index h) mutable -> std::optional<Run> {
            const Index at = whole ? 0 : n;
            if (!of || *of != at) {
              of = at;
              read = whole ? batch_ : sequence_alone(batch_, n);
              const Returned values = evaluate(read, family_, reading);
              returned.o.assign(values.o.begin(), values.o.end());
              returned.final_state.assign(values.final_state.begin(), values.final_state.end());
            }
            const Index own = whole ? n : 0;
            return Run{rows_of(read, returned, own, h), {}, state_of(read, returned, own, h)};
          });
    }
  }

  void settings() {
    if (c_.dk != c_.dv) {
      const double scale = 1.0 / std::sqrt(static_cast<double>(c_.dv));
      edited("the scale is that of the value width, dv^-1/2", [scale](auto& x) { x.scale = scale; });
    }
    if (batch_.shape.sequences() > 1) {
      add("every sequence is given the first one's result", [this](Index n, Index h) -> std::optional<Run> {
        const Sequence<double> first = sequence_of(batch_, 0, h);
        if (first.tokens() != sequence_of(batch_, n, h).tokens()) return std::nullopt;
        return family_.recurrent(first);
      });
    }
  }

  void states() {
    if (c_.chunk > 0 && !r_.unchunked()) {
      add("the state is lost between chunks",
          [this](Index n, Index h) { return in_pieces(n, h, c_.chunk, c_.chunk, true); });
      add("the last, partial chunk is left out of the state", [this](Index n, Index h) -> std::optional<Run> {
        const Sequence<double> x = sequence_of(batch_, n, h);
        const Index tail = x.tokens() % c_.chunk;
        if (tail == 0) return std::nullopt;
        Run run = family_.recurrent(x);
        run.state = family_.recurrent(x.slice(0, x.tokens() - tail, x.initial_state)).state;
        return run;
      });
    }
    if (r_.form->decodes) {
      add("the state is lost at the resume",
          [this](Index n, Index h) { return in_pieces(n, h, c_.prefill, c_.T, false); });
      add("the state is lost at every call",
          [this](Index n, Index h) { return in_pieces(n, h, c_.prefill, 1, true); });
    }
  }

  void gates() {
    if (family_.gated) {
      edited("the decay is that of the token before", [](auto& x) { shift(x.g, 1, 0.0); });
      edited("the decay is that of the token after", [](auto& x) { shift(x.g, -1, 0.0); });
      // Without this, a limit on the sums would be fitted to it, which no value of the limit determines.
      if (c_.chunk > 0 && !r_.unchunked())
        edited("after alpha = 0 the other gates of its chunk are lost: the sum of g keeps no bits of them",
               [chunk = c_.chunk](auto& x) {
                 bool lost = false;
                 for (Index t = 0; t < x.g.size(); ++t) {
                   lost = lost && t % chunk != 0;
                   if (lost) x.g(t) = 0.0;
                   lost = lost || x.g(t) < kForgets;
                 }
               });
    }
    if (family_.delta) {
      edited("beta is that of the token before", [](auto& x) { shift(x.beta, 1, 1.0); });
      edited("beta multiplies v only twice", [](auto& x) { x.v = (x.beta.asDiagonal() * x.v).eval(); });
    }
  }

  void structure() {
    if (family_.gated)
      add("o is read from the state before its token, undecayed",
          [this](Index n, Index h) { return read_early(n, h); });
    edited("the last token is left out", [](auto& x) {
      if (x.tokens() == 0) return;
      const Index t = x.tokens() - 1;
      x.k.row(t).setZero(), x.v.row(t).setZero(), x.g(t) = 0.0;
    });
  }

  template <class V>
  static void shift(V& x, int by, double fill) {
    const V old = x;
    for (Index t = 0; t < x.size(); ++t) x(t) = t - by >= 0 && t - by < x.size() ? old(t - by) : fill;
  }

  /// Runs the first `first` tokens and then pieces of `length`, starting every piece (`every`) or only the
  /// first one after them from zero.
  std::optional<Run> in_pieces(Index n, Index h, Index first, Index length, bool every) {
    const Sequence<double> x = sequence_of(batch_, n, h);
    const Index T = x.tokens();
    if (first <= 0 || first >= T) return std::nullopt;
    Run out;
    out.o.resize(T, x.value_width());
    Matrix<double> state = x.initial_state;
    for (Index begin = 0; begin < T;) {
      const Index end = std::min(begin == 0 ? first : begin + length, T);
      if (begin == first || (begin > 0 && every)) state.setZero();
      const Run piece = family_.recurrent(x.slice(begin, end, state));
      out.o.middleRows(begin, end - begin) = piece.o;
      state = piece.state;
      begin = end;
    }
    out.state = state;
    return out;
  }

  std::optional<Run> read_early(Index n, Index h) {
    const Sequence<double> x = sequence_of(batch_, n, h);
    Run out;
    out.o.resize(x.tokens(), x.value_width());
    Matrix<double> state = x.initial_state;
    for (Index t = 0; t < x.tokens(); ++t) {
      out.o.row(t) = x.scale * (x.q.row(t) * state);
      state = family_.recurrent(x.slice(t, t + 1, state)).state;
    }
    out.state = state;
    return out;
  }

  const Resolved& r_;
  const Case& c_;
  const Batch& batch_;
  const Family& family_;
  std::vector<Mistake> list_;
};

}  // namespace

std::vector<std::string> mistakes(const Resolved& r, const Family& family, const Batch& batch,
                                  const std::vector<HeadDifference>& heads) {
  double whole = 0.0;
  for (const HeadDifference& d : heads) {
    whole += (d.o - d.exact.o).squaredNorm() + (d.state - d.exact.state).squaredNorm();
  }
  if (!std::isfinite(whole) || whole == 0.0) return {};
  Equation equation(r, family, batch);
  const double most = (1.0 - kExplainedShare) * (1.0 - kExplainedShare) * whole;
  std::vector<std::pair<double, std::string>> found;
  const auto look = [&](const std::vector<Mistake>& at, double limit) {
    for (const Mistake& mistake : at) {
      double rest = 0.0;
      for (const HeadDifference& d : heads) {
        if (!(rest <= limit)) break;
        const std::optional<Run> run = mistake.run(d.sequence, d.head);
        const Run& value = run ? *run : d.exact;
        rest += (d.o - value.o).squaredNorm() + (d.state - value.state).squaredNorm();
      }
      if (rest <= limit) found.emplace_back(rest, mistake.name);
    }
  };
  const auto nearest = [&] {
    double least = most;
    for (const auto& [rest, name] : found) least = std::min(least, rest);
    return least;
  };
  // In squares: a mistake that leaves three times as much of the difference as another is not the cause, and
  // a limit, which is chosen to fit, must be better by as much.
  constexpr double kAsNear = 9.0;
  look(equation.mistakes(), most);
  look(equation.clipped(heads), found.empty() ? most : nearest() / kAsNear);
  const double limit = found.empty() ? 0.0 : kAsNear * nearest();
  std::vector<std::string> out;
  for (const auto& [rest, name] : found) {
    if (rest <= limit) out.push_back(name);
  }
  return out;
}

}  // namespace samestate
