#include "fuzz/judge_batch.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fuzz/generators/regimes.h"
#include "fuzz/runner.h"
#include "fuzz/systems.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/laws/edit.h"

namespace samestate {
namespace {

/// Tokens of a segment of the recurrent form where a run is judged segment by segment: long enough to carry,
/// short enough that a low-precision state does not drift (BOUNDS 10.1).
constexpr Index kRecurrentSegment = 4;

double default_scale(const Case& c) {
  const double root = 1.0 / std::sqrt(static_cast<double>(c.dk));
  // A power of two keeps integers exact.
  if (regime_named(c.regime).exact) return std::exp2(std::round(std::log2(root)));
  return static_cast<double>(static_cast<float>(root));
}

void keep_worst(std::optional<Judgement>& worst, Judgement j) {
  if (worst) {
    merge(*worst, j);
  } else {
    worst = std::move(j);
  }
}

/// One piece of a run that was repeated in pieces.
struct Piece {
  Batch batch;
  Outputs outputs;
};

class BatchJudge {
 public:
  BatchJudge(const Case& c, const Batch& batch, const Outputs& outputs, const Runner& rerun)
      : case_(c),
        family_(*system_named(c.system).family),
        contract_(contract_of(c)),
        batch_(batch),
        outputs_(outputs),
        rerun_(rerun),
        exact_(regime_named(c.regime).exact) {}

  [[nodiscard]] Judgement judge() {
    const BatchShape& s = batch_.shape;
    std::optional<Outputs> twin;
    if (!exact_ && has_twin()) {
      twin = run_on_twin(case_.system, batch_, path_of(case_, s.T), contract_);
      reordered_ = run_on_twin(case_.system, batch_, path_of(case_, s.T), contract_, true);
    }
    std::optional<Judgement> worst;
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        Judgement j = judge_one(n, h, twin ? &*twin : nullptr);
        // An empty sequence beside others is no evidence of its own, and no reason to distrust theirs.
        const bool empty = s.begin(n) == s.end(n);
        if (empty && j.verdict == Verdict::vacuous && s.sequences() > 1) continue;
        j.worst.sequence = n;
        j.worst.head = h;
        keep_worst(worst, std::move(j));
      }
    }
    if (worst) return *worst;
    Judgement nothing;
    nothing.reason = "nothing was compared";
    return nothing;
  }

 private:
  [[nodiscard]] bool has_twin() const {
    return low_precision(contract_) && batch_.shape.T >= kTwinTokens &&
           batch_.shape.T * batch_.shape.dv >= kTwinElements;
  }

  Judgement judge_one(std::int64_t n, std::int64_t h, const Outputs* twin) {
    const Sequence<double> x = sequence_of(batch_, n, h);
    const HeadOracle oracle =
        oracle_of(x, path_of(case_, x.tokens()), contract_, family_, batch_.shape.l2norm);
    const Matrix<double> o = rows_of(batch_, outputs_, n, h);
    const Matrix<double> state = state_of(batch_, outputs_, n, h);
    if (exact_ || x.tokens() == 0) return judge_exact(oracle, contract_, o, state);
    Judgement j = judge_head(oracle, o, state);
    if (j.verdict == Verdict::vacuous && oracle.vacuous) j = judge_pieces(n, h, std::move(j));
    // A repeating gate such as RetNet's, 1 - 2^-5, puts products on ties, which kernel and twin break as they
    // like.
    if (twin && j.verdict == Verdict::pass && !coherent_decay(x.g)) {
      const Bound sums = bound_of(x, path_of(case_, x.tokens()), sums_only(contract_), family_,
                                  oracle.policy.mode, batch_.shape.l2norm);
      const TwinRuns runs{rows_of(batch_, *twin, n, h), rows_of(batch_, *reordered_, n, h), sums.rms};
      const Judgement t = judge_twin(oracle, contract_, runs, o);
      if (t.verdict == Verdict::fail) merge(j, t);
      j.twin_ratio = t.twin_ratio;
    }
    return j;
  }

  /// BOUNDS 10.1: the oracle starts from the kernel's own state, one piece at a time; nothing accumulates.
  Judgement judge_pieces(std::int64_t n, std::int64_t h, Judgement whole_run) {
    const BatchShape& s = batch_.shape;
    const bool recurrent = runs_recurrent_only(case_) || case_.form == "decode";
    const Index length = recurrent ? kRecurrentSegment : case_.chunk;
    const auto piece_path = [&](Index tokens) { return whole(tokens, recurrent ? 0 : case_.chunk); };
    if (!rerun_ || !s.offsets.empty() || s.T <= length) return whole_run;
    if (pieces_.empty()) {
      std::vector<float> state = batch_.initial_state;
      for (std::int64_t t = 0; t < s.T; t += length) {
        Batch part = tokens_of(batch_, t, std::min<std::int64_t>(t + length, s.T));
        part.initial_state = std::move(state);
        Outputs out = rerun_(part, piece_path(part.shape.T));
        state = out.final_state;
        pieces_.push_back({std::move(part), std::move(out)});
      }
    }
    std::optional<Judgement> worst;
    std::int64_t begin = 0;
    for (const Piece& piece : pieces_) {
      const Sequence<double> x = sequence_of(piece.batch, n, h);
      const HeadOracle oracle = oracle_of(x, piece_path(x.tokens()), contract_, family_, s.l2norm);
      Judgement j = judge_head(oracle, rows_of(piece.batch, piece.outputs, n, h),
                               state_of(piece.batch, piece.outputs, n, h));
      if (j.worst.token >= 0) j.worst.token += begin;
      begin += piece.batch.shape.T;
      keep_worst(worst, std::move(j));
    }
    worst->gate = "segment " + worst->gate;
    if (worst->verdict == Verdict::vacuous) {
      worst->reason = whole_run.reason + "; nor does one segment say more: " + worst->reason;
    }
    return *worst;
  }

  const Case& case_;
  const Family& family_;
  const Contract contract_;
  const Batch& batch_;
  const Outputs& outputs_;
  const Runner& rerun_;
  bool exact_;
  std::optional<Outputs> reordered_;  ///< the twin with its sums in another order
  std::vector<Piece> pieces_;
};

}  // namespace

BatchShape batch_shape_of(const Case& c) {
  BatchShape shape{c.B,
                   c.T,
                   c.Hk,
                   c.Hv,
                   c.dk,
                   c.dv,
                   {},
                   c.heads,
                   c.scale.value_or(default_scale(c)),
                   c.l2norm,
                   c.state == "random"};
  if (!c.lengths.empty()) {
    shape.offsets = {0};
    for (std::int64_t length : c.lengths) shape.offsets.push_back(shape.offsets.back() + length);
  }
  return shape;
}

Contract contract_of(const Case& c) {
  const Contract& named = contract_named(c.contract);
  return c.l2norm ? with_l2norm(named) : named;
}

bool runs_recurrent_only(const Case& c) {
  return c.form == "recurrent" || (c.chunk == 0 && (c.form == "decode" || c.form == "packed"));
}

Path path_of(const Case& c, std::int64_t tokens) {
  if (c.form == "recurrent") return whole(tokens, 0);
  if (c.form == "parallel") return whole(tokens, std::max<std::int64_t>(c.T, 1));
  if (c.form == "decode") return prefill_and_decode(tokens, c.chunk, c.prefill);
  return whole(tokens, c.chunk);
}

Judgement judge_batch(const Case& c, const Batch& batch, const Outputs& outputs, const Runner& rerun) {
  return BatchJudge(c, batch, outputs, rerun).judge();
}

}  // namespace samestate
