#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "harness/laws/head_comparison.h"
#include "harness/laws/head_laws.h"
#include "harness/laws/shared.h"
#include "oracles/batch_edit.h"

namespace samestate::laws_detail {
namespace {

/// Returns cuts worth trying: all of them for a short sequence, else those at the ends, at the chunk's edges
/// and in the middle.
std::vector<Index> cuts_of(Index tokens, Index chunk) {
  std::set<Index> cuts;
  if (tokens <= 12) {
    for (Index t = 0; t <= tokens; ++t) cuts.insert(t);
  } else {
    const Index c = chunk > 0 ? chunk : 8;
    for (Index t : {Index{0}, Index{1}, c - 1, c, c + 1, tokens / 2, tokens - 1, tokens}) {
      cuts.insert(std::clamp<Index>(t, 0, tokens));
    }
  }
  return {cuts.begin(), cuts.end()};
}

}  // namespace

Judgement path_equivalence(const LawSubject& s) {
  Worst worst(s);
  const Index T = s.batch.shape.T;
  const Run mine = run_whole(s, s.batch);
  const std::vector<HeadRun> my_heads = heads_of(s, mine);
  const Index other =
      s.chunk == 0 ? std::min<Index>(16, std::max<Index>(T, 1)) : std::max<Index>(1, s.chunk / 2);
  const auto with = [&](Index chunk, const Ranks& ranks = {}) {
    const Run run_of_it = run(s, s.batch, whole(T, chunk, ranks));
    worst.compares(call_text(mine.path.front()), &mine, call_text(run_of_it.path.front()), &run_of_it);
    // Heads are independent: whichever rank holds one, its bits are the same.
    if (s.ranks.heads > 0 && chunk == s.chunk && s.deterministic) {
      agree_in_bits(worst, my_heads, run_of_it);
    } else {
      agree_everywhere(worst, s, my_heads, run_of_it);
    }
  };
  with(other == s.chunk ? s.chunk + 1 : other);
  if (s.ranks.count > 1) {
    with(s.chunk);
    // Equal parts, which kernels that support no others accept too; a case with drawn cuts is compared with
    // them.
    with(s.chunk, {s.ranks.count + 1, false, s.ranks.seed + 1, s.ranks.heads});
  }
  if (s.chunk != 0) with(0);
  return worst.take();
}

Judgement split_anywhere(const LawSubject& s) {
  Worst worst(s);
  const Run one = run_whole(s, s.batch);
  const std::vector<HeadRun> heads = heads_of(s, one);
  for (Index cut : cuts_of(s.batch.shape.T, s.chunk)) {
    const Run two = run(s, s.batch, split(s.batch.shape.T, s.chunk, cut, s.ranks));
    worst.compares(
        "all tokens in one call", &one,
        fmt::format("cut before token {}, with the second call from the state that the first left", cut),
        &two);
    worst.about(LawComparison::Change::calls, cut);
    agree_everywhere(worst, s, heads, two);
  }
  return worst.take();
}

Judgement causality(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  const Run before = run_whole(s, s.batch);
  const std::vector<HeadRun> heads = heads_of(s, before);
  bool effect = false;
  for (Index t : cuts_of(shape.T, s.chunk)) {
    if (t == 0 || t == shape.T) continue;
    Batch changed = s.batch;
    for (std::int64_t b = 0; b < shape.B; ++b) {
      for (std::int64_t i = (b * shape.T + t) * shape.Hv; i < (b + 1) * shape.T * shape.Hv; ++i) {
        for (std::int64_t c = 0; c < shape.dv; ++c) {
          float& v = changed.v[static_cast<std::size_t>(i * shape.dv + c)];
          v = v == 0 ? 1.0F : v * -2.0F;  // inputs reach at most half the format's range
        }
        if (!changed.g.empty()) changed.g[static_cast<std::size_t>(i)] *= 2.0F;
        if (!changed.beta.empty()) changed.beta[static_cast<std::size_t>(i)] *= 0.5F;
      }
    }
    const Run after = run_whole(s, std::move(changed));
    effect = effect || after.out.o != before.out.o;
    worst.compares("the tokens as they are", &before,
                   fmt::format("v, g and beta of the tokens from {} on changed", t), &after);
    worst.about(LawComparison::Change::future, t);
    for (const HeadRun& head : heads) {
      agree(worst, head, 0, head_of(s, after, head.sequence, head.head), 0, t, false, head.sequence,
            head.head);
    }
  }
  return if_effective(worst.take(), effect, kFutureIdle);
}

Judgement batch_permutation(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  std::vector<std::int64_t> order;
  for (std::int64_t b = 0; b < shape.B; ++b) order.push_back((b + 1) % shape.B);
  const Run plain = run_whole(s, s.batch);
  const Run moved = run_whole(s, permuted_rows(s.batch, order));
  worst.compares("the rows of the batch in their order", &plain, "each row moved one place down", &moved);
  for (std::int64_t b = 0; b < shape.B; ++b) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      agree(worst, head_of(s, plain, order[static_cast<std::size_t>(b)], h), 0, head_of(s, moved, b, h), 0,
            shape.T, true, b, h);
    }
  }
  return worst.take();
}

Judgement head_permutation(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  std::vector<std::int64_t> order, value_order;
  for (std::int64_t h = 0; h < shape.Hk; ++h) order.push_back((h + 1) % shape.Hk);
  const Run plain = run_whole(s, s.batch);
  const Run moved = run_whole(s, permuted_heads(s.batch, order, value_order));
  worst.compares("the heads in their order", &plain,
                 "each key head moved one place down, its value heads with it", &moved);
  for (std::int64_t n = 0; n < shape.B; ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      agree(worst, head_of(s, plain, n, value_order[static_cast<std::size_t>(h)]), 0, head_of(s, moved, n, h),
            0, shape.T, true, n, h);
    }
  }
  return worst.take();
}

namespace {

/// Splits x into first + second, exactly in every input format, along a checkerboard of halves and wholes.
/// The halves make the parts overlap, because on disjoint parts even a cut-off applied element by element is
/// linear. The wholes make the parts differ, along tokens as well as along channels.
void split_in_two(const std::vector<float>& x, std::int64_t width, std::vector<float>& first,
                  std::vector<float>& second) {
  const auto columns = static_cast<std::size_t>(width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t place = (i / columns + i % columns) % 4;
    // half of a smaller value may not be representable in fp16
    const bool halved = place % 2 == 0 && std::abs(x[i]) >= 0x1p-12F;
    first[i] = halved ? x[i] / 2 : (place < 2 ? x[i] : 0.0F);
    second[i] = x[i] - first[i];
  }
}

}  // namespace

Judgement linearity(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  std::array<Batch, 2> parts{s.batch, s.batch};
  split_in_two(s.batch.v, shape.dv, parts[0].v, parts[1].v);
  split_in_two(s.batch.initial_state, shape.dv, parts[0].initial_state, parts[1].initial_state);
  const Run all = run_whole(s, s.batch);
  const Run first = run_whole(s, parts[0]);
  const Run second = run_whole(s, parts[1]);
  worst.compares("v and the initial state whole", &all, "the sum of the runs on two parts of them", nullptr);
  for (std::int64_t n = 0; n < shape.B; ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      HeadRun a = head_of(s, first, n, h);
      const HeadRun b = head_of(s, second, n, h);
      a.o += b.o;
      a.state += b.state;
      a.oracle.overflow_expected = a.oracle.overflow_expected || b.oracle.overflow_expected;
      a.oracle.row += b.oracle.row;
      a.oracle.state += b.oracle.state;
      a.oracle.exact.o += b.oracle.exact.o;
      a.oracle.exact.state += b.oracle.exact.state;
      agree(worst, head_of(s, all, n, h), 0, a, 0, shape.T, true, n, h);
    }
  }
  return worst.take();
}

Judgement packing(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  const Run plain = run_whole(s, s.batch);
  const Run packed = run_whole(s, packed_of(s.batch));
  worst.compares("each sequence as a row of a dense batch", &plain,
                 "packed end to end, an empty sequence before, between and after them", &packed);
  for (std::int64_t n = 0; n < shape.B; ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      agree(worst, head_of(s, plain, n, h), 0, head_of(s, packed, 2 * n + 1, h), 0, shape.T, true, n, h);
    }
  }
  // An empty sequence passes on its initial state bit for bit.
  worst.compares("the initial state of the empty sequence in front", nullptr, "its final state", nullptr);
  for (std::int64_t h = 0; h < shape.Hv && worst.trace() != nullptr; ++h) {
    const HeadRun out = head_of(s, packed, 0, h);
    worst.keep({demanded({}, sequence_of(packed.batch, 0, h).initial_state), demanded({}, out.state), 0, 0, 0,
                true, 0, h});
  }
  const std::size_t state = static_cast<std::size_t>(shape.Hv * shape.dk * shape.dv);
  for (std::size_t i = 0; i < state; ++i) {
    const float expected = packed.batch.initial_state.empty() ? 0.0F : packed.batch.initial_state[i];
    if (packed.out.final_state[i] == expected) continue;
    Judgement j;
    j.verdict = Verdict::fail;
    j.gate = "exact state";
    j.ratio = std::numeric_limits<double>::infinity();
    j.expected = static_cast<double>(expected);
    j.actual = static_cast<double>(packed.out.final_state[i]);
    j.error = std::abs(j.actual - j.expected);
    const auto row = static_cast<std::int64_t>(i) / shape.dv;  // [Hv, dk, dv]
    j.worst.token = row % shape.dk;
    j.worst.channel = static_cast<std::int64_t>(i) % shape.dv;
    j.reason = fmt::format("the final state of an empty sequence is {} and must be its initial state {}",
                           j.actual, j.expected);
    worst.add(std::move(j), 0, row / shape.dk);
    break;
  }
  return worst.take();
}

Judgement reset(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  for (Index t : {Index{1}, std::max<Index>(1, s.chunk > 0 ? s.chunk - 1 : 1), shape.T / 2, shape.T - 1}) {
    if (t <= 0 || t >= shape.T) continue;
    Batch cut = s.batch;
    for (std::int64_t b = 0; b < shape.B; ++b) {
      std::fill_n(cut.g.begin() + (b * shape.T + t) * shape.Hv, shape.Hv, -1e30F);
    }
    Batch suffix = tokens_of(cut, t, shape.T);
    suffix.initial_state.clear();
    // There is also nothing to forget, so its first gate is arbitrary. If it were the same, gates that are
    // lost next to a sum of -1e30 would be lost in both runs.
    for (std::int64_t b = 0; b < shape.B; ++b) {
      std::fill_n(suffix.g.begin() + b * suffix.shape.T * shape.Hv, shape.Hv, 0.0F);
    }
    const Run all = run_whole(s, std::move(cut));
    const Run tail = run_whole(s, std::move(suffix));
    worst.compares(fmt::format("all tokens, alpha = 0 at token {}", t), &all,
                   fmt::format("the tokens from {} on alone, from a zero state", t), &tail);
    worst.about(LawComparison::Change::reset, t);
    for (std::int64_t n = 0; n < shape.B; ++n) {
      for (std::int64_t h = 0; h < shape.Hv; ++h) {
        agree(worst, head_of(s, all, n, h), t, head_of(s, tail, n, h), 0, shape.T - t, true, n, h);
      }
    }
  }
  return worst.take();
}

}  // namespace samestate::laws_detail
