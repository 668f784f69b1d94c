#include "harness/systems/judge_tensors.h"

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
#include "oracles/systems/judge_samples.h"
#include "oracles/systems/judge_sequence.h"
#include "oracles/systems/kernel_choice.h"
#include "oracles/systems/stages.h"

namespace samestate {
namespace {

/// The tokens whose calls are made: those after the cached ones.
std::vector<Index> tokens_made(const Case& c) {
  std::vector<Index> tokens(static_cast<std::size_t>(c.T - c.prefill));
  std::iota(tokens.begin(), tokens.end(), c.prefill);
  return tokens;
}

/// The case of one of its sequences, without what goes beside its judgement.
Case alone(Case c, Index sequence) {
  c.T = tokens_of(c, sequence);
  c.B = 1;
  c.taps = false;
  if (!c.lengths.empty()) c.form = system_named(c.system).forms.front().name;
  c.lengths.clear();
  return c;
}

/// Of many sequences also those that float64 shows to be farthest off.
ChosenHeads chosen_sequences(const Case& c, const TensorSystem& system, Call call,
                             const std::vector<CaseTensor>& inputs,
                             const std::vector<Tensors<double>>& outputs) {
  const Index most = system.sequences_to_hold(c);
  const Index all = sequences_of(c);
  const bool few = most < std::min(all, kChosenHeads);
  // Where few can be held, one of them is the farthest.
  ChosenHeads chosen(
      all, 1, c.seed, [](Index) { return true; }, few ? most - 1 : kChosenHeads);
  if (chosen.all()) return chosen;
  call.form = system.row.forms.front().name;
  Farthest farthest;
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
                  const Tensors<double>& outputs) {
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
  Farthest farthest;
  for (const auto& [token, distance] : tokens) farthest.add(token, distance);
  for (const Index token : farthest.heads()) chosen.add(token);
}

/// Tokens of tensors that have a row, or several, a token; `whole` are those that have none.
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

/// The parts of a sequence: of tokens that do not meet one, of those that meet rows of a prefix one for each span within a call.
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

/// The place of a part in its sequence.
void place_in_sequence(Location& at, const SequencePart& part, const TensorSystem& system) {
  if (part.tokens.empty() || at.token < 0) return;
  // A row is a token, or one of its heads.
  const Signature signature = system.row.signature(part.call);
  const Index rows = std::max<Index>(signature.outputs.front().rows() / part.call.tokens, 1);
  at.token = part.tokens[static_cast<std::size_t>(at.token / rows)] * rows + at.token % rows;
}

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
    // Calls that end between two of them.
    const auto ends = [&](Index cut) { return cut > part.tokens[i - 1] && cut <= part.tokens[i]; };
    if (std::ranges::any_of(cuts, ends)) part.cuts.push_back(static_cast<Index>(i));
  }
  return part;
}

Judgement judge_tensors(const Resolved& r, const TensorSystem& system, std::string_view native,
                        const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& outputs,
                        std::vector<OperatorOracle>* oracles) {
  const Call whole = system.call(r.c, native);
  const ChosenHeads chosen = chosen_sequences(r.c, system, whole, inputs, outputs);
  // Of work 1, some 35 ms of the running error. Without rounding points samples are dearer, and few runs are in doubt.
  double one = 0.0;  // of the sequence that is judged
  Index held = chosen.count();
  const auto twins = [&](double work, bool points) {
    return SampledSequences(held, work, points ? 0.5 : 0.0, points ? 2.0 : 0.0);
  };
  const auto draws = [&](double work, bool points) {
    const bool law = r.law != nullptr;
    // Samples of a large chunk, as its form computes it, take a minute where the running error takes a tenth of a second.
    const double tiles = std::max(1.0, static_cast<double>(r.c.chunk) / 64.0);
    const double vacuous = (points ? 1.0 : 0.3) / (tiles * tiles);
    return SampledSequences(held, work, points ? 0.1 : 0.0, law ? 0.0 : vacuous);
  };
  // Few correct runs are in doubt, and drawing fails a wrong one. This is the work of a case that may be drawn, about forty samples
  // of it. With a few tokens most of the work is reading a layer's weights, which a sample does once; with more tokens each sample
  // takes as long as the running error.
  constexpr Index kFewTokens = 4;
  constexpr double kOfManyTokens = 16.0;
  double left_in_doubt = r.c.chunk > 64 ? 0.5 : 256.0;
  const auto in_doubt = [&](double work, Index tokens) {
    if (tokens > kFewTokens) work *= kOfManyTokens;
    if (work > left_in_doubt) return false;
    left_in_doubt -= work;
    return true;
  };
  // A twin is sought among the subsets of its points. A stage has few of the layer's, and part of its work.
  constexpr double kOfStage = 0.25;
  // The inverse of a large chunk is all of the layer's.
  const double of_drawn_stage = r.c.chunk > 64 ? 1.0 : kOfStage;
  const std::vector<Index> cuts = cuts_of(r);
  // A packed sequence is held whole.
  const bool by_token =
      !r.c.taps && r.c.T > 0 && !r.form->packed && held_by_token(system.row, system.row.signature(whole));
  std::optional<Judgement> worst, zeros;
  Index looked = 0;
  std::string which;
  Index of_tokens = 0;
  const auto add = [&](Judgement judgement) {
    // What is zero by right (a request of no slot) is no evidence of its own, and no reason to distrust the others'.
    const bool zero =
        judgement.verdict == Verdict::vacuous && judgement.gate == kZeroGate && judgement.stages.empty();
    std::optional<Judgement>& to = zero ? zeros : worst;
    if (to) {
      merge(*to, judgement);
    } else {
      to = std::move(judgement);
    }
  };
  std::vector<TwinVariant> known;
  struct Early {
    SequencePart part;
    Index b;
    Index looked;
    OperatorOracle oracle;
    Judgement judgement;
  };
  constexpr Index kEarly = 4;  // of a kernel that is wrong in all of them one is enough
  std::vector<Early> early;
  const auto judge_part = [&](const SequencePart& part, Index b, const OperatorOracle& oracle, double work) {
    const bool points = oracle.points && r.law == nullptr;
    const auto asked = [&](double of_twins, double of_draws) {
      return GatesAsked{[=, &looked](Verdict v) { return twins(of_twins, points).takes(looked, v); },
                        [=, &looked](Verdict v) { return draws(of_draws, points).takes(looked, v); },
                        [=, &part](double share) {
                          const auto tokens = static_cast<double>(part.call.tokens);
                          return in_doubt(share * of_draws, std::lround(share * tokens));
                        }};
    };
    const std::optional<ChosenByKernel> chosen =
        chosen_by_kernel(system.row, part.call, part.inputs, part.cuts, *r.contract, oracle, part.outputs);
    Judgement judgement = judge_sequence({system.row, chosen ? chosen->call : part.call, part.inputs,
                                          part.cuts, *r.contract, chosen ? chosen->oracle : oracle, &known},
                                         part.outputs, r.c.seed, asked(work, work));
    if (std::ranges::any_of(system.taps, [&](const std::string& tap) { return part.outputs.contains(tap); }))
      add_stages(judgement,
                 judge_stages(system.row, part.call, part.inputs, part.outputs, part.cuts, *r.contract,
                              r.c.seed, asked(kOfStage * work, of_drawn_stage * work)));
    place_in_sequence(judgement.worst, part, system);
    judgement.worst.sequence = b;
    ++looked;
    return judgement;
  };
  for (Index b = 0; b < sequences_of(r.c); ++b) {
    const bool takes = chosen.takes(b, 0);
    if (!takes && oracles == nullptr) continue;
    const Call call = call_of_sequence(whole, r.c, b);
    one = system.work(alone(r.c, b));
    Tensors<double> sequence = sequence_of(inputs, b);
    const Tensors<double>& actual = outputs[static_cast<std::size_t>(b)];
    ChosenTokens tokens = r.c.cached ? ChosenTokens::behind(r.c.T, r.c.prefill)
                                     : ChosenTokens(r.c.T, r.c.seed + static_cast<std::uint64_t>(b),
                                                    r.form->decodes ? r.c.prefill : 0);
    if (takes && by_token && !tokens.all()) {
      if (!r.c.cached) add_farthest(tokens, system.row, call, sequence, actual);
      const std::vector<SequencePart> parts = parts_of(system.row, call, cuts, sequence, actual, tokens);
      held = chosen.count() * std::ssize(parts);
      std::vector<Judgement> of_parts;
      for (const SequencePart& part : parts) {
        of_parts.push_back(
            judge_part(part, b, operator_oracle(system.row, part.call, part.inputs, part.cuts, *r.contract),
                       one / static_cast<double>(parts.size())));
      }
      // As of the rows of a sequence that is held whole: a bound that says nothing of some leaves the others judged.
      if (std::ranges::any_of(of_parts, [](const Judgement& j) { return j.verdict == Verdict::pass; }))
        std::erase_if(of_parts, [](const Judgement& j) {
          return j.verdict == Verdict::vacuous && j.gate != kInDoubtGate;
        });
      for (Judgement& judgement : of_parts) add(std::move(judgement));
      if (which.empty()) which = tokens.text(), of_tokens = tokens.count();
      if (oracles == nullptr) continue;
      oracles->push_back(operator_oracle(system.row, call, sequence, cuts, *r.contract));
      continue;
    }
    OperatorOracle oracle = operator_oracle(system.row, call, sequence, cuts, *r.contract);
    if (takes) {
      SequencePart part{call, cuts, std::move(sequence), actual, {}};
      const std::size_t knew = known.size();
      const Index before = looked;
      Judgement judgement = judge_part(part, b, oracle, one);
      const bool twin = judgement.verdict == Verdict::fail && judgement.gate.starts_with("twin");
      // A twin that later sequences have may be this one's too.
      if (twin && knew == 0 && std::ssize(early) < kEarly) {
        early.push_back({std::move(part), b, before, oracle, std::move(judgement)});
      } else {
        add(std::move(judgement));
      }
    }
    if (oracles) oracles->push_back(std::move(oracle));
  }
  for (Early& one_of : early) {
    looked = one_of.looked;
    add(known.empty() ? std::move(one_of.judgement) : judge_part(one_of.part, one_of.b, one_of.oracle, one));
  }
  if (!worst) worst = zeros ? std::move(*zeros) : Judgement{};
  chosen.note(*worst, chosen.others());
  if (!which.empty()) {
    if (chosen.all()) worst->held = of_tokens, worst->held_of = r.c.T;
    worst->held_which += (worst->held_which.empty() ? "" : "; ") + which;
  }
  return *worst;
}

}  // namespace samestate
