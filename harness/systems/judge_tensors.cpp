#include "harness/systems/judge_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "harness/run/chosen_heads.h"
#include "harness/run/chosen_tokens.h"
#include "harness/systems/sampled_sequences.h"
#include "oracles/judge.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"
#include "oracles/systems/judge_samples.h"
#include "oracles/systems/judge_sequence.h"
#include "oracles/systems/kernel_choice.h"
#include "oracles/systems/scalars.h"
#include "oracles/systems/stages.h"

namespace samestate {
namespace {

/// Returns the tokens whose calls are made: those after the cached ones.
std::vector<Index> tokens_made(const Case& c) {
  std::vector<Index> tokens(static_cast<std::size_t>(c.T - c.prefill));
  std::iota(tokens.begin(), tokens.end(), c.prefill);
  return tokens;
}

/// Returns the case of one of its sequences, without the parts that do not concern its judgement.
Case alone(Case c, Index sequence) {
  c.T = tokens_of(c, sequence);
  c.B = 1;
  c.taps = false;
  if (!c.lengths.empty()) c.form = system_named(c.system).forms.front().name;
  c.lengths.clear();
  return c;
}

/// Returns the chosen sequences; if there are many, including those that float64 shows to be farthest off.
ChosenHeads chosen_sequences(const Case& c, const TensorSystem& system, Call call,
                             const std::vector<CaseTensor>& inputs,
                             const std::vector<Tensors<double>>& outputs, const JudgePolicy& policy) {
  const Index most = system.sequences_to_hold(c, policy);
  const Index all = sequences_of(c);
  const bool few = most < std::min(all, policy.held_heads);
  // If only a few sequences can be compared with their tolerance, one of them is the farthest.
  ChosenHeads chosen(
      all, 1, c.seed, [](Index) { return true; }, policy, few ? most - 1 : policy.held_heads);
  if (chosen.all()) return chosen;
  call.form = system.row.forms.front().name;
  Farthest farthest(policy.farthest);
  for (Index b = 0; b < all; ++b) {
    if (chosen.takes(b, 0)) continue;
    Distance distance;
    const auto add = [&](const Call& of, const Tensors<double>& sequence, const Tensors<double>& actual) {
      for (const auto& [name, x] : system.row.exact(of, sequence)) distance.add(x, get(actual, name));
    };
    Tensors<double> sequence = sequence_of(inputs, b);
    const Tensors<double>& actual = outputs[static_cast<std::size_t>(b)];
    if (c.cached) {
      const SequencePart made = part_of(system.row, call, {}, sequence, actual, tokens_made(c));
      add(made.call, made.inputs, made.outputs);
    } else {
      add(call_of_sequence(call, c, b), sequence, actual);
    }
    farthest.add(b, distance);
  }
  for (const Index b : farthest.heads()) {
    if (!few || chosen.count() < most) chosen.add(b, 0);
  }
  if (chosen.count() == 0) chosen.add(0, 0);
  return chosen;
}

/// Adds the tokens of a sequence that float64 shows to be farthest off.
void add_farthest(ChosenTokens& chosen, const Operator& row, Call call, const Tensors<double>& inputs,
                  const Tensors<double>& outputs, const JudgePolicy& policy) {
  call.form = row.forms.front().name;
  const auto number = [](double x) { return std::isnan(x) ? HUGE_VAL : x; };
  std::map<Index, Distance> tokens;
  for (const auto& [name, exact] : row.exact(call, inputs)) {
    const Matrix<double>& actual = get(outputs, name);
    const Index rows = exact.rows() / call.tokens;
    const double size = exact.norm() / std::sqrt(static_cast<double>(std::max<Index>(exact.rows(), 1)));
    for (Index r = 0; r < exact.rows(); ++r) {
      const double error = (actual.row(r) - exact.row(r)).norm();
      if (error == 0.0) continue;
      Distance& distance = tokens[r / rows];
      distance.all = std::max(distance.all, number(error / size));
      distance.row = std::max(distance.row, number(error / exact.row(r).norm()));
    }
  }
  Farthest farthest(policy.farthest);
  for (const auto& [token, distance] : tokens) farthest.add(token, distance);
  for (const Index token : farthest.heads()) chosen.add(token);
}

/// Returns the rows of these tokens in tensors with one or more rows per token; tensors in `whole` have none.
Tensors<double> rows_of_tokens(const std::vector<TensorSpec>& specs, const Tensors<double>& from,
                               const std::vector<Index>& tokens, Index of) {
  Tensors<double> out;
  for (const TensorSpec& spec : specs) {
    const Matrix<double>& x = get(from, spec.name);
    if (spec.axis == Axis::prefix) {
      out.emplace(spec.name, x.topRows(x.rows() / of * (tokens.back() + 1)));
    } else if (spec.axis != Axis::tokens) {
      out.emplace(spec.name, x);
    } else {
      const Index rows = x.rows() / of;
      Matrix<double> kept(rows * std::ssize(tokens), x.cols());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        kept.middleRows(static_cast<Index>(i) * rows, rows) = x.middleRows(tokens[i] * rows, rows);
      out.emplace(spec.name, std::move(kept));
    }
  }
  return out;
}

/// Returns the parts of a sequence: parts of independent tokens, or, where tokens read the rows of a prefix,
/// one part for each span within a call.
std::vector<SequencePart> parts_of(const Operator& row, const Call& call, const std::vector<Index>& cuts,
                                   const Tensors<double>& inputs, const Tensors<double>& outputs,
                                   const ChosenTokens& chosen) {
  std::vector<SequencePart> parts;
  std::vector<Index> tokens;
  const auto take = [&] {
    if (!tokens.empty())
      parts.push_back(part_of(row, call, cuts, inputs, outputs, std::exchange(tokens, {})));
  };
  for (const TokenSpan& span : chosen.spans()) {
    for (Index t = span.begin; t < span.end; ++t) {
      if (!row.token_wise && (t == span.begin || std::ranges::binary_search(cuts, t))) take();
      tokens.push_back(t);
    }
  }
  take();
  return parts;
}

/// Moves a part's location to its place in the sequence.
void place_in_sequence(Location& at, const SequencePart& part, const TensorSystem& system) {
  if (part.tokens.empty() || at.token < 0) return;
  // A row is a token, or one of its heads.
  const Signature signature = system.row.signature(part.call);
  const Index rows = std::max<Index>(signature.outputs.front().rows() / part.call.tokens, 1);
  at.token = part.tokens[static_cast<std::size_t>(at.token / rows)] * rows + at.token % rows;
}

/// True if nothing rounds in the form that ran: draws of all roundings leave the exact outputs, which their formats hold.
bool rounds_nothing(const Operator& op, const SequencePart& part, const OperatorOracle& oracle,
                    const Contract& contract, std::uint64_t seed) {
  constexpr int kDraws = 2;
  for (const auto& [name, exact] : oracle.exact) {
    const Format format = oracle.format(name, contract.output);
    if (exact != exact.unaryExpr([&](double x) { return round_to(x, format); })) return false;
  }
  for (int n = 0; n < kDraws; ++n) {
    SampledModel model = SampledModel::sample(contract, seed, n);
    model.working = true;
    // Every library has 1 for e^0, and the exact regimes have no other decay but zero.
    model.exponential_bias = model.base_two_slope = 0.0;
    model.by_base_two = false;
    const SamplingScope scope(model);
    for (const auto& [name, x] : evaluate<Stochastic>(op.stochastic, op, part.call, part.inputs, part.cuts)) {
      if (get(oracle.exact, name) != x.unaryExpr([](const Stochastic& e) { return e.value(); })) return false;
    }
  }
  return true;
}

/// Compares every element bit for bit; only zeros of both signs are the same.
Judgement judge_bits(const OperatorOracle& oracle, const Tensors<double>& actual) {
  Judgement judgement;
  judgement.gate = "exact";
  bool any = false;
  for (const auto& [name, exact] : oracle.exact) {
    const Matrix<double>& x = get(actual, name);
    judgement.rows += exact.rows();
    any = any || !exact.isZero(0.0);
    for (Index i = 0; i < exact.rows() && judgement.verdict != Verdict::fail; ++i) {
      for (Index j = 0; j < exact.cols() && judgement.verdict != Verdict::fail; ++j) {
        if (x(i, j) == exact(i, j)) continue;
        judgement.verdict = Verdict::fail;
        judgement.ratio = HUGE_VAL;
        judgement.error = std::abs(x(i, j) - exact(i, j));
        judgement.expected = exact(i, j);
        judgement.actual = x(i, j);
        judgement.worst = oracle.place(name, i, j);
        judgement.reason = fmt::format(
            "output {}: nothing rounds with these data, so that every correct kernel returns these bits",
            name);
      }
    }
  }
  if (judgement.verdict == Verdict::fail) return judgement;
  judgement.verdict = any ? Verdict::pass : Verdict::vacuous;
  if (!any) {
    judgement.gate = kZeroGate;
    judgement.reason = "everything expected is zero";
  }
  return judgement;
}

/// Judges one run, sequence by sequence.
class TensorsJudge {
 public:
  TensorsJudge(const Resolved& r, const TensorSystem& system, const TensorCalls& calls,
               const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& outputs,
               const JudgePolicy& policy, std::vector<OperatorOracle>* oracles)
      : r_(r),
        system_(system),
        inputs_(inputs),
        outputs_(outputs),
        policy_(policy),
        oracles_(oracles),
        whole_(calls.whole),
        call_(whole_),
        cuts_(calls.cuts),
        chosen_(chosen_sequences(r.c, system, whole_, inputs, outputs, policy)),
        held_(chosen_.count()),
        by_token_(!r.c.taps && r.c.T > 0 && held_by_token(system.row, calls.signature)),
        doubt_left_(large_chunk() ? policy.doubt_work_of_large_chunk : policy.doubt_work) {}

  [[nodiscard]] Judgement judge() {
    for (Index b = 0; b < sequences_of(r_.c); ++b) {
      call_ = call_of_sequence(whole_, r_.c, b);
      if (!chosen_.takes(b, 0)) {
        if (oracles_) oracles_->push_back(oracle_of(sequence_of(inputs_, b)));
        continue;
      }
      work_ = system_.work(alone(r_.c, b), policy_);
      ChosenTokens tokens = chosen_tokens(b);
      if (by_token_ && !tokens.all()) {
        judge_tokens(b, std::move(tokens));
      } else {
        judge_whole(b);
      }
    }
    judge_early();
    return worst();
  }

 private:
  /// A failure in a sequence before any had a twin: a twin found for a later sequence may explain this one
  /// too.
  struct Early {
    SequencePart part;
    Index b;
    Index looked;
    OperatorOracle oracle;
    Judgement judgement;
    double work;
  };

  [[nodiscard]] bool large_chunk() const { return r_.c.chunk > policy_.large_chunk; }

  [[nodiscard]] OperatorOracle oracle_of(const Tensors<double>& sequence) const {
    return operator_oracle(system_.row, call_, sequence, cuts_, *r_.contract);
  }

  /// Returns the tokens of sequence b that are compared with their tolerance.
  [[nodiscard]] ChosenTokens chosen_tokens(Index b) const {
    const Case& c = r_.c;
    if (c.cached) return ChosenTokens::behind(c.T, c.prefill);
    return {tokens_of(c, b), c.seed + static_cast<std::uint64_t>(b), policy_,
            r_.form->decodes ? c.prefill : 0};
  }

  [[nodiscard]] bool may_seek_twin(double work, bool points, Verdict worst_case) const {
    if (!points) return false;
    return SampledSequences(held_, work, policy_.twin_work, policy_.vacuous_twin_work)
        .takes(looked_, worst_case);
  }

  [[nodiscard]] bool may_draw(double work, bool points, Verdict worst_case) const {
    // Samples of a large chunk, as its form computes it, take a minute, while the running error takes a tenth
    // of a second.
    const double tiles =
        std::max(1.0, static_cast<double>(r_.c.chunk) / static_cast<double>(policy_.large_chunk));
    const double vacuous =
        (points ? policy_.vacuous_draw_work : policy_.vacuous_draw_work_in_fp32) / (tiles * tiles);
    return SampledSequences(held_, work, points ? policy_.draw_work : 0.0, r_.law != nullptr ? 0.0 : vacuous)
        .takes(looked_, worst_case);
  }

  /// Correct runs are rarely in doubt, and drawing only helps to fail a wrong one: all runs share the work of
  /// one case.
  [[nodiscard]] bool may_draw_in_doubt(double work, Index tokens) {
    // With a few tokens most of the work is reading a layer's weights, which a sample does once; with more
    // tokens each sample takes as long as the running error.
    if (tokens > policy_.few_tokens) work *= policy_.many_tokens_factor;
    if (work > doubt_left_) return false;
    doubt_left_ -= work;
    return true;
  }

  /// Returns the gates that this part may use; `twins` and `draws` give its work for either.
  [[nodiscard]] GatesAsked asked(const SequencePart& part, bool points, double twins, double draws) {
    return {[=, this](Verdict v) { return may_seek_twin(twins, points, v); },
            [=, this](Verdict v) { return may_draw(draws, points, v); },
            [=, this, &part](double share) {
              const auto tokens = static_cast<double>(part.call.tokens);
              return may_draw_in_doubt(share * draws, std::lround(share * tokens));
            }};
  }

  Judgement judge_part(const SequencePart& part, Index b, const OperatorOracle& oracle, double work) {
    const bool points = oracle.points && r_.law == nullptr;
    const std::optional<ChosenByKernel> chosen =
        chosen_by_kernel(system_.row, part.call, part.inputs, part.cuts, *r_.contract, oracle, part.outputs);
    Judgement judgement = judge_sequence({system_.row, chosen ? chosen->call : part.call, part.inputs,
                                          part.cuts, *r_.contract, chosen ? chosen->oracle : oracle, &known_},
                                         part.outputs, r_.c.seed, policy_, asked(part, points, work, work));
    if (std::ranges::any_of(system_.taps, [&](const std::string& tap) { return part.outputs.contains(tap); }))
      judge_stages_of(part, points, work, judgement);
    place_in_sequence(judgement.worst, part, system_);
    judgement.worst.sequence = b;
    ++looked_;
    return judgement;
  }

  /// Adds the judgements of a layer's stages to the judgement of the whole.
  void judge_stages_of(const SequencePart& part, bool points, double work, Judgement& judgement) {
    const double share = policy_.stage_share;
    // The inverse of a large chunk takes as much drawing as the whole layer.
    const double drawn = large_chunk() ? 1.0 : share;
    add_stages(judgement,
               judge_stages(system_.row, part.call, part.inputs, part.outputs, part.cuts, *r_.contract,
                            r_.c.seed, policy_, asked(part, points, share * work, drawn * work)));
  }

  void judge_tokens(Index b, ChosenTokens tokens) {
    const Tensors<double> sequence = sequence_of(inputs_, b);
    const Tensors<double>& actual = outputs_[static_cast<std::size_t>(b)];
    if (!r_.c.cached) add_farthest(tokens, system_.row, call_, sequence, actual, policy_);
    const std::vector<SequencePart> parts = parts_of(system_.row, call_, cuts_, sequence, actual, tokens);
    held_ = chosen_.count() * std::ssize(parts);
    std::vector<Judgement> of_parts;
    for (const SequencePart& part : parts) {
      of_parts.push_back(
          judge_part(part, b, operator_oracle(system_.row, part.call, part.inputs, part.cuts, *r_.contract),
                     work_ / static_cast<double>(parts.size())));
    }
    // This follows the rule for the rows of a sequence held whole: a vacuous bound for some of them leaves
    // the others judged.
    if (std::ranges::any_of(of_parts, [](const Judgement& j) { return j.verdict == Verdict::pass; }))
      std::erase_if(of_parts, [](const Judgement& j) {
        return j.verdict == Verdict::vacuous && j.gate != kInDoubtGate;
      });
    for (Judgement& judgement : of_parts) add(std::move(judgement));
    if (which_.empty()) {
      which_ = r_.form->packed ? fmt::format("of sequence {} {}", b, tokens.text()) : tokens.text();
      of_tokens_ = tokens.count(), of_all_ = call_.tokens;
    }
    if (oracles_) oracles_->push_back(oracle_of(sequence));
  }

  void judge_whole(Index b) {
    SequencePart part{call_, cuts_, sequence_of(inputs_, b), outputs_[static_cast<std::size_t>(b)], {}};
    OperatorOracle oracle = oracle_of(part.inputs);
    if (r_.regime->exact && rounds_nothing(system_.row, part, oracle, *r_.contract, r_.c.seed)) {
      Judgement judgement = judge_bits(oracle, part.outputs);
      judgement.worst.sequence = b;
      ++looked_;
      add(std::move(judgement));
      // An explanation then shows every bit that differs.
      for (auto& [name, tolerance] : oracle.tolerance) tolerance.setZero();
      if (oracles_) oracles_->push_back(std::move(oracle));
      return;
    }
    const std::size_t knew = known_.size();
    const Index before = looked_;
    Judgement judgement = judge_part(part, b, oracle, work_);
    const bool twin = judgement.verdict == Verdict::fail && judgement.gate.starts_with("twin");
    if (twin && knew == 0 && std::ssize(early_) < policy_.early_failures) {
      early_.push_back({std::move(part), b, before, oracle, std::move(judgement), work_});
    } else {
      add(std::move(judgement));
    }
    if (oracles_) oracles_->push_back(std::move(oracle));
  }

  void judge_early() {
    for (Early& early : early_) {
      looked_ = early.looked;
      add(known_.empty() ? std::move(early.judgement)
                         : judge_part(early.part, early.b, early.oracle, early.work));
    }
  }

  void add(Judgement judgement) {
    // An output that is zero by definition (a request without a slot) proves nothing by itself and is no
    // reason to distrust the others.
    const bool zero =
        judgement.verdict == Verdict::vacuous && judgement.gate == kZeroGate && judgement.stages.empty();
    std::optional<Judgement>& to = zero ? zeros_ : worst_;
    if (to) {
      merge(*to, judgement);
    } else {
      to = std::move(judgement);
    }
  }

  /// Returns the worst judgement, and says which parts were compared with their tolerance.
  [[nodiscard]] Judgement worst() {
    if (!worst_) worst_ = zeros_ ? std::move(*zeros_) : Judgement{};
    chosen_.note(*worst_, chosen_.others());
    if (which_.empty()) return std::move(*worst_);
    if (chosen_.all()) worst_->held = of_tokens_, worst_->held_of = of_all_;
    worst_->held_which += (worst_->held_which.empty() ? "" : "; ") + which_;
    return std::move(*worst_);
  }

  const Resolved& r_;
  const TensorSystem& system_;
  const std::vector<CaseTensor>& inputs_;
  const std::vector<Tensors<double>>& outputs_;
  const JudgePolicy& policy_;
  std::vector<OperatorOracle>* oracles_;
  const Call whole_;
  Call call_;  ///< of the sequence being judged: in a packed batch each has its own tokens
  const std::vector<Index> cuts_;
  const ChosenHeads chosen_;
  Index held_;         ///< sequences held, or held in part
  Index looked_ = 0;   ///< how many of these have been judged
  double work_ = 0.0;  ///< work for the sequence being judged, without taps
  const bool by_token_;
  double doubt_left_;               ///< work left for runs in doubt
  std::vector<TwinVariant> known_;  ///< twins found for earlier sequences
  std::vector<Early> early_;
  std::optional<Judgement> worst_, zeros_;
  std::string which_;    ///< the tokens held, for the first sequence that is held in part
  Index of_tokens_ = 0;  ///< the number of these tokens
  Index of_all_ = 0;     ///< the number of tokens it has
};

}  // namespace

SequencePart part_of(const Operator& row, const Call& call, const std::vector<Index>& cuts,
                     const Tensors<double>& inputs, const Tensors<double>& outputs,
                     std::vector<Index> tokens) {
  const Signature signature = row.signature(call);
  SequencePart part{call,
                    {},
                    rows_of_tokens(signature.inputs, inputs, tokens, call.tokens),
                    rows_of_tokens(signature.outputs, outputs, tokens, call.tokens),
                    std::move(tokens)};
  part.call.tokens = std::ssize(part.tokens);
  const Index last = part.tokens.back();
  const auto end = std::ranges::upper_bound(cuts, last);
  part.call.behind = (end == cuts.end() ? call.tokens : *end) - last - 1;
  for (std::size_t i = 1; i < part.tokens.size(); ++i) {
    // The calls that end between two of them.
    const auto ends = [&](Index cut) { return cut > part.tokens[i - 1] && cut <= part.tokens[i]; };
    if (std::ranges::any_of(cuts, ends)) part.cuts.push_back(static_cast<Index>(i));
  }
  return part;
}

Judgement judge_tensors(const Resolved& r, const TensorSystem& system, const TensorCalls& calls,
                        const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& outputs,
                        const JudgePolicy& policy, std::vector<OperatorOracle>* oracles) {
  return TensorsJudge(r, system, calls, inputs, outputs, policy, oracles).judge();
}

}  // namespace samestate
