#include "harness/laws/head_comparison.h"
#include "oracles/reasons.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace samestate::laws_detail {

Run run(const LawSubject& s, Batch batch, Path path) {
  Outputs out = s.run(batch, path);
  return {std::move(batch), std::move(path), std::move(out)};
}

Run run_whole(const LawSubject& s, Batch batch) {
  const Index tokens = batch.shape.T;
  return run(s, std::move(batch), s.whole(tokens));
}

HeadRun head_of(const LawSubject& s, const Run& r, std::int64_t n, std::int64_t h) {
  const Sequence<double> x = sequence_of(r.batch, n, h);
  const Path path = path_of_sequence(r.path, r.batch.shape, n);
  return {oracle_of(x, path, s.contract, s.family, r.batch.shape.l2norm), rows_of(r.batch, r.out, n, h),
          state_of(r.batch, r.out, n, h), n, h};
}

std::vector<HeadRun> heads_of(const LawSubject& s, const Run& r) {
  std::vector<HeadRun> out;
  for (std::int64_t n = 0; n < r.batch.shape.sequences(); ++n) {
    for (std::int64_t h = 0; h < r.batch.shape.Hv; ++h) out.push_back(head_of(s, r, n, h));
  }
  return out;
}

HeadRun demanded(Matrix<double> o, Matrix<double> state) {
  HeadRun out;
  out.oracle.exact.o = o;
  out.oracle.exact.state = state;
  out.oracle.row = Vector<double>::Zero(o.rows());
  out.o = std::move(o);
  out.state = std::move(state);
  return out;
}

std::string call_text(const Segment& call) {
  const bool heads = !call.head_cuts.empty();
  const std::vector<Index>& cuts = heads ? call.head_cuts : call.cuts;
  return cuts.empty() ? chunks_text(call.chunk)
                      : fmt::format("{}, over {} ranks cut at {}{}", chunks_text(call.chunk), cuts.size() - 1,
                                    heads ? "heads " : "", fmt::join(cuts, ","));
}

std::string chunks_text(Index chunk) {
  return chunk > 0 ? fmt::format("in chunks of {}", chunk) : "token by token";
}

void Worst::compares(std::string first, const Run* first_run, std::string second, const Run* second_run) {
  if (trace_ == nullptr) return;
  LawComparison comparison;
  comparison.first = std::move(first);
  comparison.second = std::move(second);
  if (first_run) comparison.first_run = *first_run;
  if (second_run) comparison.second_run = *second_run;
  trace_->comparisons.push_back(std::move(comparison));
}

void Worst::about(LawComparison::Change change, Index place) {
  if (trace_ == nullptr) return;
  trace_->comparisons.back().change = change;
  trace_->comparisons.back().place = place;
}

void Worst::at_most() {
  if (trace_ != nullptr && !trace_->comparisons.empty()) trace_->comparisons.back().at_most = true;
}

void Worst::keep(LawPair pair) {
  if (trace_ != nullptr && !trace_->comparisons.empty())
    trace_->comparisons.back().pairs.push_back(std::move(pair));
}

bool overflowed_as_expected(const HeadRun& r) {
  return !(r.o.allFinite() && r.state.allFinite()) && r.oracle.overflow_expected;
}

Judgement nothing_to_compare() {
  Judgement j;
  j.gate = "range";
  j.reason = "overflow is expected, so nothing can be compared";
  return j;
}

void Worst::add(Judgement j, std::int64_t n, std::int64_t h) {
  j.worst.sequence = n;
  j.worst.head = h;
  if (worst_) {
    merge(*worst_, j);
  } else {
    worst_ = std::move(j);
  }
}

Judgement Worst::take() {
  if (worst_) return std::move(*worst_);
  Judgement nothing;
  nothing.reason = "nothing was compared";
  return nothing;
}

void agree(Worst& worst, const HeadRun& a, Index a0, const HeadRun& b, Index b0, Index count, bool states,
           std::int64_t n, std::int64_t h) {
  if (overflowed_as_expected(a) || overflowed_as_expected(b)) {
    worst.add(nothing_to_compare(), n, h);
    return;
  }
  if (worst.trace()) worst.keep({a, b, a0, b0, count, states, n, h});
  if (count > 0) {
    Judgement j = judge_pair(a.o.middleRows(a0, count), a.oracle.row.segment(a0, count),
                             b.o.middleRows(b0, count), b.oracle.row.segment(b0, count));
    if (j.worst.token >= 0) j.worst.token += a0;
    worst.add(std::move(j), n, h);
  }
  if (states) {
    const auto flat = [](const Matrix<double>& m) {
      return Matrix<double>(Eigen::Map<const Matrix<double>>(m.data(), 1, m.size()));
    };
    Judgement j = judge_pair(flat(a.state), Vector<double>::Constant(1, a.oracle.state), flat(b.state),
                             Vector<double>::Constant(1, b.oracle.state));
    j.state_ratio = j.row_ratio;
    j.row_ratio = 0;
    if (j.verdict == Verdict::fail) j.reason = std::string(kFinalState) + j.reason;
    worst.add(std::move(j), n, h);
  }
}

void agree_in_bits(Worst& worst, const std::vector<HeadRun>& a, const Run& b) {
  for (const HeadRun& head : a) {
    const auto [n, h] = std::pair(head.sequence, head.head);
    if (overflowed_as_expected(head)) {
      worst.add(nothing_to_compare(), n, h);
      continue;
    }
    agree(worst, demanded(head.o, head.state), 0,
          demanded(rows_of(b.batch, b.out, n, h), state_of(b.batch, b.out, n, h)), 0, b.batch.shape.T, true,
          n, h);
  }
}

void agree_everywhere(Worst& worst, const LawSubject& s, const std::vector<HeadRun>& a, const Run& b) {
  for (const HeadRun& head : a) {
    agree(worst, head, 0, head_of(s, b, head.sequence, head.head), 0, b.batch.shape.T, true, head.sequence,
          head.head);
  }
}

}  // namespace samestate::laws_detail
