#include "harness/run/judge_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "harness/cases/counter.h"
#include "harness/cases/generate.h"
#include "harness/run/chosen_heads.h"
#include "harness/run/family_run.h"
#include "harness/run/head_cost.h"
#include "oracles/batch_edit.h"
#include "oracles/contracts.h"
#include "oracles/directions.h"
#include "oracles/judge.h"
#include "oracles/limits.h"
#include "oracles/reasons.h"

namespace samestate {
namespace {

void keep_worst(std::optional<Judgement>& worst, Judgement j) {
  if (worst) {
    merge(*worst, j);
  } else {
    worst = std::move(j);
  }
}

/// One piece of a run that was repeated piece by piece.
struct Piece {
  Batch batch;
  Outputs outputs;
  std::optional<Outputs> twin = {};  ///< present if the twin gate asks for it
  std::vector<Outputs> alike =
      {};  ///< the twin in other orders: first of its sums, then of the factors of A and of its decays
};

/// Moves beta and g by at most a unit in the last place, as another order of the factors of A or of the sums
/// of g does. Moves all of q by the same step if no operand rounds it and P is rounded: for unit q = k the
/// products are about 1, and another order of their sums puts them on either side of a number of P's format.
Batch nudged(Batch batch, std::uint64_t draw, const Contract& contract) {
  std::mt19937_64 bits(draw);
  const auto nudge = [](float& x, std::uint64_t way) {
    if (x != 0.0F && way > 0) x = std::nextafter(x, way == 1 ? 0.0F : 2 * x);
  };
  for (std::vector<float>* gate : {&batch.g, &batch.beta}) {
    for (float& x : *gate) nudge(x, bits() % 3);
  }
  const auto kept = [](Format format) { return format == Format::fp32 || format == Format::none; };
  if (!kept(contract.qk) || !kept(contract.q_decayed) || kept(contract.P)) return batch;
  for (float& x : batch.q) nudge(x, draw % 3);
  return batch;
}

/// Takes for every row the one of `alike` that is farthest from the twin: where one order flips the ties in
/// half of the rows, another flips those in the other half, and a kernel's order flips some of both.
Matrix<double> farthest(const Matrix<double>& twin, const std::vector<Matrix<double>>& alike) {
  Matrix<double> out = twin;
  for (const Matrix<double>& x : alike) {
    for (Index i = 0; i < twin.rows(); ++i) {
      // A row that is not finite is returned, so that it cannot enter the limits unseen.
      const double d = (x.row(i) - twin.row(i)).squaredNorm();
      if (!(d <= (out.row(i) - twin.row(i)).squaredNorm())) out.row(i) = x.row(i);
    }
  }
  return out;
}

/// The rows that the twin gate compares: of o or of final states, from a run or from its pieces.
class TwinRows {
 public:
  TwinRows(const Contract& contract, bool repeated) : contract_(contract), repeated_(repeated) {}

  void add(const Matrix<double>& exact, const Vector<double>& rms, const Vector<double>& order,
           const Matrix<double>& twin, const Matrix<double>& reordered, const Matrix<double>& actual) {
    parts_.push_back({exact, rms, order, twin, reordered, actual});
  }

  [[nodiscard]] Judgement judge(bool vacuous = false, bool of_states = false) const {
    HeadOracle all;
    all.exact.o = joined(&Part::exact);
    all.rms = joined(&Part::rms);
    all.vacuous = vacuous;
    const TwinRuns runs{joined(&Part::twin), joined(&Part::reordered), joined(&Part::order), repeated_,
                        of_states};
    return judge_twin(all, contract_, runs, joined(&Part::actual));
  }

  /// The number of independent directions in the twin's errors: a state's error is a sum of k_t e_t^T over as
  /// many tokens as its memory holds, however many rows it has.
  [[nodiscard]] double directions() const {
    Directions directions;
    for (const Part& x : parts_) {
      Matrix<double> e = x.twin - x.exact;
      for (Index i = 0; i < e.rows(); ++i) e.row(i) *= x.rms(i) > 0 ? 1.0 / x.rms(i) : 0.0;
      directions.add(e);
    }
    return directions.count();
  }

 private:
  struct Part {
    Matrix<double> exact;
    Vector<double> rms, order;
    Matrix<double> twin, reordered, actual;
  };

  template <class Rows>
  [[nodiscard]] Rows joined(Rows Part::*member) const {
    Index rows = 0;
    for (const Part& part : parts_) rows += (part.*member).rows();
    Rows out;
    out.resize(rows, (parts_.front().*member).cols());
    Index begin = 0;
    for (const Part& part : parts_) {
      out.middleRows(begin, (part.*member).rows()) = part.*member;
      begin += (part.*member).rows();
    }
    return out;
  }

  const Contract& contract_;
  bool repeated_;
  std::vector<Part> parts_;
};

class BatchJudge {
 public:
  BatchJudge(const Resolved& r, const Family& family, const Batch& batch, const Outputs& outputs,
             const JudgePolicy& policy, const Runner& rerun, const TakesTokens& takes)
      : case_(r),
        family_(family),
        contract_(r.promised),
        batch_(batch),
        outputs_(outputs),
        policy_(policy),
        rerun_(rerun),
        takes_(takes),
        exact_(r.regime->exact) {}

  [[nodiscard]] Judgement judge() {
    const BatchShape& s = batch_.shape;
    const ChosenHeads chosen = this->chosen();
    if (!exact_ && has_twin()) twin_ = twin_of(chosen);
    std::optional<Judgement> worst;
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        if (!chosen.takes(n, h)) continue;
        Judgement j = judge_one(n, h);
        // An empty sequence among others proves nothing by itself, and is no reason to distrust the others.
        const bool empty = s.begin(n) == s.end(n);
        if (empty && j.verdict == Verdict::vacuous && s.sequences() > 1) continue;
        j.worst.sequence = n;
        j.worst.head = h;
        keep_worst(worst, std::move(j));
      }
    }
    if (!worst) {
      worst.emplace();
      worst->reason = "nothing was compared";
    }
    chosen.note(*worst, plain_);
    return *worst;
  }

 private:
  /// If there are many heads, it adds those that float64 shows to be farthest off.
  [[nodiscard]] ChosenHeads chosen() {
    const BatchShape& s = batch_.shape;
    const HeadCost cost = mean_cost_of_head(case_.c, family_);
    ChosenHeads chosen(
        s.sequences(), s.Hv, case_.c.seed, [&](std::int64_t n) { return s.begin(n) != s.end(n); }, policy_,
        heads_to_hold(cost, policy_));
    if (chosen.all()) return chosen;
    Farthest farthest(policy_.farthest);
    constexpr std::int64_t kDraws = 1 << 20;
    const auto looks = static_cast<std::int64_t>(share_in_float64(cost, chosen.others(), policy_) * kDraws);
    const Counter draws(case_.c.seed, "heads in float64");
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        if (chosen.takes(n, h) || draws.below({n, 0, h, 0}, kDraws) >= looks) continue;
        ++plain_;
        const Trajectory<double> exact = family_.recurrent(sequence_of(batch_, n, h));
        Distance distance;
        distance.add(exact.o, rows_of(batch_, outputs_, n, h));
        distance.add(exact.state, state_of(batch_, outputs_, n, h));
        farthest.add(n * s.Hv + h, distance);
      }
    }
    const Index before = chosen.count();
    // Take as many as the time allows, alternating between both measures and starting with the farthest
    // heads.
    const std::vector<Index> heads = farthest.heads();
    const Index most = std::max<Index>(heads_to_hold(cost, policy_) / 4, 2);
    for (Index i = 0; i < std::ssize(heads) && chosen.count() < before + most; ++i)
      chosen.add(heads[static_cast<std::size_t>(i)] / s.Hv, heads[static_cast<std::size_t>(i)] % s.Hv);
    plain_ -= chosen.count() - before;
    return chosen;
  }

  /// The twin runs only on the heads that are compared with their tolerance: it takes as long as the kernel,
  /// and heads are independent.
  struct TwinRun {
    Batch batch;
    std::vector<std::int64_t> place;  ///< the place of each value head in `batch`; -1 if it is not there
    Outputs outputs, reordered;       ///< with its sums in another order
  };

  [[nodiscard]] TwinRun twin_of(const ChosenHeads& chosen) const {
    const BatchShape& s = batch_.shape;
    TwinRun run;
    std::vector<std::int64_t> heads;
    run.place.assign(static_cast<std::size_t>(s.Hv), -1);
    for (std::int64_t h = 0; h < s.Hv; ++h) {
      bool taken = case_.divides_heads();  // true if the cuts run over all heads
      for (std::int64_t n = 0; n < s.sequences() && !taken; ++n) taken = chosen.takes(n, h);
      if (!taken) continue;
      run.place[static_cast<std::size_t>(h)] = std::ssize(heads);
      heads.push_back(h);
    }
    run.batch = std::ssize(heads) == s.Hv ? batch_ : heads_of(batch_, heads);
    const Path path = case_.path(s.T);
    run.outputs = run_on_twin(family_.name, run.batch, path, contract_);
    run.reordered = run_on_twin(family_.name, run.batch, path, contract_, true);
    return run;
  }

  [[nodiscard]] bool has_twin() const {
    // Our twin has its norm at GDN-32's epsilon, and a factor that normalises sums cannot be applied before
    // the call.
    const bool norm_is_ours =
        !batch_.shape.l2norm || batch_.shape.given.usual_norm() || contract_.norm != Norm::factor;
    return low_precision(contract_) && norm_is_ours && batch_.shape.T >= kTwinTokens &&
           batch_.shape.T * batch_.shape.dv >= kTwinElements;
  }

  Judgement judge_one(std::int64_t n, std::int64_t h) {
    const Sequence<double> x = sequence_of(batch_, n, h);
    const Matrix<double> o = rows_of(batch_, outputs_, n, h);
    const Matrix<double> state = state_of(batch_, outputs_, n, h);
    const Path path = path_of_sequence(case_.path(batch_.shape.T), batch_.shape, n);
    if (exact_ || x.tokens() == 0) {
      return judge_exact(exact_oracle_of(x, path, contract_, family_, batch_.shape.l2norm), contract_, o,
                         state);
    }
    const HeadOracle oracle = oracle_for(x, path);
    Judgement j = judge_head(oracle, o, state);
    if (j.verdict == Verdict::vacuous && oracle.vacuous) j = judge_pieces(n, h, std::move(j));
    // A repeating gate such as RetNet's, 1 - 2^-5, puts products on ties, which kernel and twin may break
    // differently.
    if (twin_ && j.verdict == Verdict::pass && !coherent_decay(x.g)) {
      const std::int64_t place = twin_->place[static_cast<std::size_t>(h)];
      TwinRows rows(contract_, repeated_keys(x));
      TwinRows states(contract_, repeated_keys(x));
      const Bound sums = sums_for(x, path, oracle);
      rows.add(oracle.exact.o, oracle.rms, sums.rms, rows_of(twin_->batch, twin_->outputs, n, place),
               rows_of(twin_->batch, twin_->reordered, n, place), o);
      states.add(oracle.exact.state, oracle.state_rms, sums.state_rows,
                 state_of(twin_->batch, twin_->outputs, n, place),
                 state_of(twin_->batch, twin_->reordered, n, place), state);
      Judgement t = with_states(rows.judge(oracle.vacuous), states, oracle.vacuous);
      // One rounding that went the other way early on stays in a long memory and moves every later row. When
      // each piece starts from the kernel's own state, it moves only the rows of its piece, while an
      // undeclared rounding appears in all of them. The twin there is also run with moved gates.
      if (t.verdict == Verdict::fail) t = judge_twin_pieces(n, h, std::move(t));
      if (t.verdict == Verdict::fail && contract_.nearest) {
        j.reason = fmt::format(
            "the card is nearest: {:.3g} of the twin's limit, reported and not gated (--strict gates it){}",
            t.twin_ratio,
            t.reason.find(kMoreExact) == std::string::npos
                ? ""
                : "; the kernel rounds less than the card declares");
      } else if (t.verdict == Verdict::fail) {
        merge(j, t);
      }
      j.twin_ratio = t.twin_ratio;
    }
    return j;
  }

  [[nodiscard]] HeadOracle oracle_for(const Sequence<double>& x, const Path& path) const {
    return oracle_of(x, path, contract_, family_, batch_.shape.l2norm);
  }

  [[nodiscard]] Bound sums_for(const Sequence<double>& x, const Path& path, const HeadOracle& oracle) const {
    return bound_of(x, path, sums_only(contract_), family_, oracle.policy.mode, batch_.shape.l2norm);
  }

  /// A rounding on the way to the state, for example of e^{G_C - G} V', appears in no row of o before the
  /// next chunk: this takes the worse result of the twin gate on o and on the final states.
  [[nodiscard]] Judgement with_states(Judgement of_o, const TwinRows& states, bool vacuous = false) const {
    if (states.directions() < kTwinDirections) return of_o;
    Judgement of_states = states.judge(vacuous, true);
    if (of_states.verdict == Verdict::unsupported) return of_o;
    if (of_states.verdict == Verdict::fail) of_states.reason = "the final state " + of_states.reason;
    if (of_o.verdict == Verdict::unsupported) return of_states;
    merge(of_o, of_states);
    return of_o;
  }

  /// Decoded pieces use the recurrent kernel. A piece over ranks has two ranks, so that it composes a state;
  /// ranks that divide heads do so in every piece.
  [[nodiscard]] Path piece_path(Index tokens) const {
    const bool recurrent = case_.unchunked() || case_.form->decodes;
    return whole(tokens, recurrent ? 0 : case_.c.chunk, recurrent ? Ranks{} : piece_ranks());
  }
  [[nodiscard]] Ranks piece_ranks() const {
    return case_.divides_heads() ? case_.ranks() : Ranks{std::min<Index>(case_.c.ranks, 2), false, 0};
  }

  /// Returns sequence n run again in pieces, each from the state that the kernel left (BOUNDS 10.1). This is
  /// one piece if it is the run itself, and no piece if the kernel cannot be called.
  std::vector<Piece>& pieces_of(std::int64_t n) {
    const auto [at, added] = pieces_.try_emplace(n);
    if (!added || !policy_.reruns) return at->second;
    const Batch alone = sequence_alone(batch_, n);
    const Index chunk = piece_path(1).front().chunk;
    const Index parts = case_.divides_heads() ? 1 : piece_ranks().count;
    const Index length = chunk > 0 ? chunk * parts : policy_.piece_tokens;
    std::vector<float> state = alone.initial_state;
    std::int64_t end = 0;
    for (const Index tokens : piece_lengths(alone.shape.T, length, takes_)) {
      const std::int64_t begin = std::exchange(end, end + tokens);
      Batch part = tokens_of(alone, begin, end);
      part.initial_state = std::move(state);
      Outputs out = rerun_(part, piece_path(part.shape.T));
      state = out.final_state;
      at->second.push_back({std::move(part), std::move(out)});
    }
    return at->second;
  }

  Judgement judge_pieces(std::int64_t n, std::int64_t h, Judgement whole_run) {
    // no later piece begins with finite numbers
    if (whole_run.reason == kOverflowsOnTheWay) return whole_run;
    const std::vector<Piece>& pieces = pieces_of(n);
    if (pieces.size() == 1) return whole_run;
    std::optional<Judgement> worst;
    std::int64_t begin = 0;
    for (const Piece& piece : pieces) {
      const Sequence<double> x = sequence_of(piece.batch, 0, h);
      const HeadOracle oracle = oracle_for(x, piece_path(x.tokens()));
      Judgement j = judge_head(oracle, rows_of(piece.batch, piece.outputs, 0, h),
                               state_of(piece.batch, piece.outputs, 0, h));
      if (j.worst.token >= 0) j.worst.token += begin;
      begin += piece.batch.shape.T;
      keep_worst(worst, std::move(j));
    }
    if (!worst) return whole_run;
    worst->gate = "segment " + worst->gate;
    if (worst->verdict == Verdict::vacuous) {
      worst->reason = whole_run.reason + "; nor does one segment say more: " + worst->reason;
    }
    return *worst;
  }

  Judgement judge_twin_pieces(std::int64_t n, std::int64_t h, Judgement whole_run) {
    std::vector<Piece>& pieces = pieces_of(n);
    if (pieces.empty()) return whole_run;
    const bool repeated = repeated_keys(sequence_of(batch_, n, h));
    TwinRows rows(contract_, repeated);
    TwinRows states(contract_, repeated);
    for (Piece& piece : pieces) {
      const Sequence<double> x = sequence_of(piece.batch, 0, h);
      const Path path = piece_path(x.tokens());
      if (!piece.twin) {
        piece.twin = run_on_twin(family_.name, piece.batch, path, contract_);
        piece.alike.push_back(run_on_twin(family_.name, piece.batch, path, contract_, true));
        for (int draw = 0; draw < policy_.twin_nudges; ++draw)
          piece.alike.push_back(run_on_twin(family_.name,
                                            nudged(piece.batch, static_cast<std::uint64_t>(draw), contract_),
                                            path, contract_));
      }
      std::vector<Matrix<double>> of_o, of_state;
      for (const Outputs& other : piece.alike) {
        of_o.push_back(rows_of(piece.batch, other, 0, h));
        of_state.push_back(state_of(piece.batch, other, 0, h));
      }
      const HeadOracle oracle = oracle_for(x, path);
      const Bound sums = sums_for(x, path, oracle);
      const Matrix<double> twin = rows_of(piece.batch, *piece.twin, 0, h);
      const Matrix<double> twin_state = state_of(piece.batch, *piece.twin, 0, h);
      rows.add(oracle.exact.o, oracle.rms, sums.rms, twin, farthest(twin, of_o),
               rows_of(piece.batch, piece.outputs, 0, h));
      states.add(oracle.exact.state, oracle.state_rms, sums.state_rows, twin_state,
                 farthest(twin_state, of_state), state_of(piece.batch, piece.outputs, 0, h));
    }
    return with_states(rows.judge(), states);
  }

  const Resolved& case_;
  const Family& family_;
  const Contract contract_;
  const Batch& batch_;
  const Outputs& outputs_;
  const JudgePolicy& policy_;
  const Runner& rerun_;
  const TakesTokens& takes_;
  bool exact_;
  std::optional<TwinRun> twin_;
  Index plain_ = 0;                                    ///< heads that only float64 checked
  std::map<std::int64_t, std::vector<Piece>> pieces_;  ///< by sequence
};

}  // namespace

BatchShape batch_shape_of(const Resolved& r) {
  const Case& c = r.c;
  BatchShape shape{
      c.B, c.T, c.Hk, c.Hv, c.dk, c.dv, {}, c.heads, scale_of(c, *r.regime), c.l2norm, c.state == "random"};
  if (!c.lengths.empty()) {
    shape.offsets = offsets_of(c);
  }
  return shape;
}

Batch batch_of(const Resolved& r, const Family& family, int threads) {
  Draw draw;
  draw.shape = batch_shape_of(r);
  draw.regime = r.regime;
  draw.seed = r.c.seed;
  draw.gated = family.gated;
  draw.beta = family.delta;
  draw.contract = r.contract;
  draw.threads = threads;
  return generate(draw);
}

Judgement judge_batch(const Resolved& r, const Family& family, const Batch& batch, const Outputs& outputs,
                      const JudgePolicy& policy, const Runner& rerun, const TakesTokens& takes) {
  return BatchJudge(r, family, batch, outputs, policy, rerun, takes).judge();
}

}  // namespace samestate
