#include "harness/captured/captured_spans.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "oracles/numbers.h"
#include "oracles/stretch.h"

namespace samestate {
namespace {

constexpr Index kLeastSpan = 256;
/// The decay after which an error of the state counts as forgotten: e^-20 = 2e-9 of an error as large as the
/// state is far below any rounding of 16 bits, and of the size of those of 32.
constexpr double kForgotten = 20.0;
constexpr Index kSpansAtMost = 16;

/// Returns how much of a state token t forgets, as an exponent: its decay, and what the delta rule removes
/// from one of dk directions. This decides where to begin; the bound itself carries what is left of the
/// state's error.
double forgets(const Sequence<double>& x, Index t, bool delta) {
  double out = -x.g(t);
  if (delta) {
    const double kept = 1.0 - x.beta(t) * x.k.row(t).squaredNorm();
    out += std::max(0.0, 1.0 - kept * kept) / (2.0 * static_cast<double>(x.key_width()));
  }
  return out;
}

class Spans {
 public:
  Spans(const Sequence<double>& x, Index chunk, const Contract& contract, const Family& family, bool l2norm,
        const Matrix<double>& o, const Matrix<double>& state, Index tokens)
      : x_(x),
        chunk_(chunk),
        contract_(contract),
        family_(family),
        l2norm_(l2norm),
        o_(o),
        state_(state),
        tokens_(tokens),
        length_(span_length(chunk)),
        count_((x.tokens() + length_ - 1) / length_) {}

  [[nodiscard]] SpanJudgement judge() {
    run_exactly();
    for (const Index block : order()) {
      const bool owed = block == 0 || block == count_ - 1 || block == farthest_.front();
      if (held_.size() >= kSpansAtMost || (!owed && used_ >= tokens_)) continue;
      hold(block);
    }
    SpanJudgement out;
    out.said_nothing = said_nothing_;
    for (auto& [block, span] : held_) out.spans.push_back(std::move(span));
    out.exact = std::move(exact_);
    return out;
  }

 private:
  [[nodiscard]] Index begin(Index block) const { return block * length_; }
  [[nodiscard]] Index end(Index block) const { return std::min(begin(block) + length_, x_.tokens()); }

  /// Evaluates all tokens in float64. states_[b] is the state with which block b begins, and largest_[b] the
  /// largest state before it.
  void run_exactly() {
    exact_.o.resize(x_.tokens(), x_.value_width());
    Matrix<double> state = x_.initial_state;
    double largest = state.norm();
    std::vector<double> off(static_cast<std::size_t>(count_)), row(off.size());
    const double size =
        std::max(o_.allFinite() ? o_.norm() / std::sqrt(static_cast<double>(o_.rows())) : 1.0, 1e-300);
    for (Index block = 0; block < count_; ++block) {
      states_.push_back(state);
      largest_.push_back(largest);
      const Index n = end(block) - begin(block);
      Trajectory<double> part = family_.recurrent(x_.slice(begin(block), end(block), std::move(state)));
      exact_.o.middleRows(begin(block), n) = part.o;
      const Vector<double> errors = (o_.middleRows(begin(block), n) - part.o).rowwise().norm();
      const auto at = static_cast<std::size_t>(block);
      const bool finite = errors.allFinite();
      row[at] = finite ? errors.maxCoeff() / size : kInfinity;
      off[at] = finite ? errors.norm() / std::max(part.o.norm(), 1e-300) : kInfinity;
      state = std::move(part.state);
      largest = std::max(largest, state.norm());
    }
    exact_.state = std::move(state);
    // The farthest block by the one measure comes first, then the farthest by the other, and so on.
    std::vector<Index> by_row(static_cast<std::size_t>(count_)), by_block;
    std::iota(by_row.begin(), by_row.end(), Index{0});
    by_block = by_row;
    std::ranges::stable_sort(by_row, std::greater<>(),
                             [&](Index b) { return row[static_cast<std::size_t>(b)]; });
    std::ranges::stable_sort(by_block, std::greater<>(),
                             [&](Index b) { return off[static_cast<std::size_t>(b)]; });
    for (std::size_t i = 0; i < by_row.size(); ++i)
      farthest_.insert(farthest_.end(), {by_row[i], by_block[i]});
  }

  [[nodiscard]] std::vector<Index> order() const {
    std::vector<Index> out{0, count_ - 1};
    for (const Index block : farthest_) {
      if (std::ranges::find(out, block) == out.end()) out.push_back(block);
    }
    return out;
  }

  /// Returns the block at which the bound of a stretch begins: far enough before it for the state to forget its error.
  [[nodiscard]] Index start_for(Index block) const {
    const Index most = std::max(tokens_ / 2, 2 * length_);
    double forgotten = 0.0;
    Index b = block;
    while (b > 0 && forgotten < kForgotten && begin(block) - begin(b) < most) {
      --b;
      for (Index t = begin(b); t < end(b); ++t) forgotten += forgets(x_, t, family_.delta);
    }
    return b;
  }

  void hold(Index block) {
    const Index from = start_for(block), first = begin(from), last = end(block);
    const auto at = static_cast<std::size_t>(from);
    const Sequence<double> part = x_.slice(first, last, states_[at]);
    StateError unknown;
    unknown.sigma = largest_[at] * largest_[at] * Matrix<double>::Identity(x_.key_width(), x_.key_width());
    unknown.coherent = Matrix<double>::Zero(x_.key_width(), x_.key_width());
    HeadOracle oracle = oracle_of_stretch(part, whole(last - first, chunk_), contract_, family_, l2norm_,
                                          from > 0 ? &unknown : nullptr);
    used_ += last - first;
    oracle = last_tokens(std::move(oracle), part, begin(block) - first);
    const Index n = last - begin(block);
    const bool ends = block == count_ - 1;
    Judgement j = judge_head(oracle, o_.middleRows(begin(block), n), ends ? state_ : oracle.exact.state);
    if (j.worst.token >= 0 && j.gate.find("state") == std::string::npos) j.worst.token += begin(block);
    if (block > 0 && j.verdict == Verdict::vacuous) {
      ++said_nothing_;
      return;
    }
    held_.emplace(block, HeldSpan{{begin(block), last}, std::move(oracle), std::move(j)});
  }

  const Sequence<double>& x_;
  Index chunk_;
  const Contract& contract_;
  const Family& family_;
  bool l2norm_;
  const Matrix<double>& o_;
  const Matrix<double>& state_;
  Index tokens_, length_, count_;
  Trajectory<double> exact_;
  std::vector<Matrix<double>> states_;
  std::vector<double> largest_;
  std::vector<Index> farthest_;
  std::map<Index, HeldSpan> held_;
  Index used_ = 0;
  std::int64_t said_nothing_ = 0;
};

}  // namespace

Index span_length(Index chunk) { return chunk > 0 ? (kLeastSpan + chunk - 1) / chunk * chunk : kLeastSpan; }

SpanJudgement judge_in_spans(const Sequence<double>& x, Index chunk, const Contract& contract,
                             const Family& family, bool l2norm, const Matrix<double>& o,
                             const Matrix<double>& state, Index tokens) {
  return Spans(x, chunk, contract, family, l2norm, o, state, tokens).judge();
}

}  // namespace samestate
