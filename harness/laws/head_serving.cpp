#include "harness/laws/head_laws.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "harness/laws/head_comparison.h"
#include "harness/laws/shared.h"
#include "oracles/batch_edit.h"

namespace samestate::laws_detail {
namespace {

/// One request: how far it is, the state that the kernel left, and its inputs so far.
struct HeadSlot {
  std::int64_t done = 0;
  std::vector<float> state;
  std::vector<float> o;     ///< [tokens of path, Hv, dv]
  Path path;                ///< the calls of its current history
  std::vector<Batch> said;  ///< the inputs of these calls, including tokens that do nothing, which are summed
                            ///< and rounded too
};

/// Joins dense batches of one row each into one packed batch.
Batch packed_from(const std::vector<Batch>& parts) {
  Batch all = parts.front();
  all.shape.offsets = {0, all.shape.T};
  const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Batch& part = parts[i];
    append(all.q, part.q);
    append(all.k, part.k);
    append(all.v, part.v);
    append(all.g, part.g);
    append(all.beta, part.beta);
    append(all.initial_state, part.initial_state);
    all.shape.T += part.shape.T;
    all.shape.offsets.push_back(all.shape.T);
  }
  return all;
}

class HeadServer {
 public:
  explicit HeadServer(const LawSubject& s) : s_(s), engine_(fnv_of(s.batch.q)), worst_(s) {
    for (std::int64_t n = 0; n < s.batch.shape.B; ++n) {
      requests_.push_back(sequence_alone(s.batch, n));
      // Every call starts from a state, which is zero if the case has none.
      Batch& request = requests_.back();
      request.shape.initial_state = true;
      if (request.initial_state.empty()) request.initial_state.assign(state_size(), 0.0F);
      slots_.push_back({0, request.initial_state, {}, {}, {}});
    }
  }

  Judgement run() {
    int restarts = 0;
    while (true) {
      std::vector<std::size_t> open;
      for (std::size_t n = 0; n < slots_.size(); ++n) {
        if (left(n) > 0) open.push_back(n);
      }
      if (open.empty()) break;
      const std::size_t n = open[below(open.size())];
      switch (below(8)) {
        case 0:
          if (restarts < kRestarts && slots_[n].done > 0) ++restarts, restart(n);
          break;
        case 1:
          speculate(n);
          break;
        case 2:
          if (open.size() > 1) pack(open);
          break;
        case 3:
        case 4:
          decode(open);
          break;
        default:
          advance(n, 1 + static_cast<std::int64_t>(below(static_cast<std::size_t>(left(n)))),
                  below(3) == 0 ? 1 + static_cast<std::int64_t>(below(3)) : 0);
      }
    }
    for (std::size_t n = 0; n < slots_.size(); ++n) judge(n);
    return worst_.take();
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  [[nodiscard]] std::int64_t left(std::size_t n) const { return s_.batch.shape.T - slots_[n].done; }
  [[nodiscard]] std::size_t state_size() const {
    const BatchShape& shape = s_.batch.shape;
    return static_cast<std::size_t>(shape.Hv * shape.dk * shape.dv);
  }

  /// Returns the next `count` tokens of slot n from its state, and `padding` tokens that do nothing.
  [[nodiscard]] Batch next(std::size_t n, std::int64_t count, std::int64_t padding = 0) const {
    const HeadSlot& slot = slots_[n];
    const std::int64_t T = s_.batch.shape.T;
    Batch part = tokens_of(requests_[n], slot.done, slot.done + count);
    part.initial_state = slot.state;
    if (padding > 0) {
      // Tokens to be undone are the request's own, so that a kernel that reads them is noticed.
      Batch more = tokens_of(requests_[n], T - std::min(padding, T), T);
      more.initial_state.clear();
      part = packed_from({part, more});
      part.shape.offsets.clear();
      for (std::int64_t t = count; t < part.shape.T; ++t) make_no_op(part, 0, t);
    }
    return part;
  }

  /// Stores in slot n the inputs `said` of a call, of which the first `count` tokens are its own, and from
  /// the call's output the rows from `begin` on and state `sequence`; `call` is how its tokens were
  /// evaluated.
  void take(std::size_t n, Batch said, const Outputs& out, std::int64_t begin, std::int64_t count,
            std::int64_t sequence, Segment call) {
    HeadSlot& slot = slots_[n];
    const std::int64_t row = s_.batch.shape.Hv * s_.batch.shape.dv;
    const std::int64_t rows = said.shape.T;
    slot.o.insert(slot.o.end(), out.o.begin() + begin * row, out.o.begin() + (begin + rows) * row);
    const auto size = static_cast<std::int64_t>(state_size());
    slot.state.assign(out.final_state.begin() + sequence * size,
                      out.final_state.begin() + (sequence + 1) * size);
    slot.done += count;
    slot.path.push_back(std::move(call));
    if (!slot.said.empty()) said.initial_state.clear();
    slot.said.push_back(std::move(said));
    if (tracing() && !forked_) look(n);
  }

  [[nodiscard]] bool tracing() const { return s_.trace != nullptr && !found_; }
  /// Adds a line of the program to the trace.
  void say(const std::string& what) {
    if (tracing()) s_.trace->program.push_back(what);
  }
  [[nodiscard]] std::string tokens_text(std::size_t n, std::int64_t count) const {
    const std::int64_t begin = slots_[n].done;
    return count == 1 ? fmt::format("token {}", begin)
                      : fmt::format("tokens {}..{}", begin, begin + count - 1);
  }

  void advance(std::size_t n, std::int64_t count, std::int64_t padding) {
    say(fmt::format("slot {}{}: {} in one call, {}{}", n, forked_ ? ", its fork" : "", tokens_text(n, count),
                    chunks_text(s_.chunk),
                    padding > 0 ? fmt::format(", then {} that do nothing", padding) : ""));
    Batch part = next(n, count, padding);
    const Path path = s_.whole(part.shape.T);
    const Outputs out = s_.run(part, path);
    take(n, std::move(part), out, 0, count, 0, path.front());
  }

  /// Runs one token of every open slot in one batch, in the form that decodes.
  void decode(const std::vector<std::size_t>& open) {
    std::vector<std::string> words;
    for (std::size_t n : open) words.push_back(fmt::format("slot {} {}", n, tokens_text(n, 1)));
    say(fmt::format("decode, one batch: {}", fmt::join(words, ", ")));
    Batch all;
    std::vector<Batch> parts;
    for (std::size_t n : open) {
      const Batch& one = parts.emplace_back(next(n, 1));
      if (all.q.empty()) {
        all = one;
        continue;
      }
      const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(all.q, one.q), append(all.k, one.k), append(all.v, one.v), append(all.g, one.g);
      append(all.beta, one.beta), append(all.initial_state, one.initial_state);
      ++all.shape.B;
    }
    const Outputs out = s_.run(all, whole(1, 0));
    for (std::size_t i = 0; i < open.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      take(open[i], std::move(parts[i]), out, row, 1, row, {1, 0});
    }
  }

  /// Runs several slots, each with its own number of tokens, in one packed call.
  void pack(const std::vector<std::size_t>& open) {
    std::vector<Batch> parts;
    std::vector<std::int64_t> counts;
    std::vector<std::string> words;
    for (std::size_t n : open) {
      counts.push_back(1 + static_cast<std::int64_t>(below(static_cast<std::size_t>(left(n)))));
      parts.push_back(next(n, counts.back()));
      words.push_back(fmt::format("slot {} {}", n, tokens_text(n, counts.back())));
    }
    say(fmt::format("one packed call, {}: {}", chunks_text(s_.chunk), fmt::join(words, ", ")));
    const Batch packed = packed_from(parts);
    const Path path = s_.whole(packed.shape.T);
    const Outputs out = s_.run(packed, path);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const auto sequence = static_cast<Index>(i);
      take(open[i], std::move(parts[i]), out, begin, counts[i], sequence,
           path_of_sequence(path, packed.shape, sequence).front());
      begin += counts[i];
    }
  }

  /// Lets a fork of slot n run ahead on tokens that are then rejected, which must not affect the slot itself.
  void speculate(std::size_t n) {
    const HeadSlot before = slots_[n];
    forked_ = true;
    advance(n, 1 + static_cast<std::int64_t>(below(static_cast<std::size_t>(left(n)))), 0);
    forked_ = false;
    slots_[n] = before;
    say(fmt::format("slot {}: the fork is rejected", n));
  }

  void restart(std::size_t n) {
    judge(n);
    slots_[n] = {0, requests_[n].initial_state, {}, {}, {}};
    say(fmt::format("slot {}: freed, its request begins again", n));
  }

  /// Returns the slot's whole history, as one run with the calls of which it consisted.
  [[nodiscard]] Run history_of(std::size_t n) const {
    const HeadSlot& slot = slots_[n];
    Batch told = packed_from(slot.said);
    told.shape.offsets.clear();
    return {std::move(told), slot.path, {slot.o, slot.state}};
  }

  /// Compares that history with the oracle.
  void judge(std::size_t n) {
    if (slots_[n].done == 0) return;
    const Run history = history_of(n);
    for (std::int64_t h = 0; h < s_.batch.shape.Hv; ++h) {
      const HeadRun head = head_of(s_, history, 0, h);
      worst_.add(judge_head(head.oracle, head.o, head.state), static_cast<std::int64_t>(n), h);
    }
  }

  /// Does the same after a call, for the trace; the first call that left something wrong ends the program.
  void look(std::size_t n) {
    const Run history = history_of(n);
    std::vector<LawPair> pairs;
    for (std::int64_t h = 0; h < s_.batch.shape.Hv; ++h) {
      HeadRun head = head_of(s_, history, 0, h);
      found_ = found_ || judge_head(head.oracle, head.o, head.state).verdict == Verdict::fail;
      pairs.push_back({demanded(head.oracle.exact.o, head.oracle.exact.state), std::move(head), 0, 0,
                       history.batch.shape.T, true, static_cast<std::int64_t>(n), h});
    }
    if (!found_) return;
    worst_.compares(
        fmt::format("the whole history of slot {}, {} tokens", n, history.batch.shape.T), nullptr,
        fmt::format("what its calls returned, and its state after call {}", s_.trace->program.size()),
        &history);
    worst_.about(LawComparison::Change::slots);
    for (LawPair& pair : pairs) worst_.keep(std::move(pair));
  }

  const LawSubject& s_;
  std::mt19937_64 engine_;
  std::vector<Batch> requests_;
  std::vector<HeadSlot> slots_;
  Worst worst_;
  bool forked_ = false;  ///< the call belongs to a fork
  bool found_ = false;   ///< the trace is complete
};

}  // namespace

Judgement serving(const LawSubject& s) { return HeadServer(s).run(); }

}  // namespace samestate::laws_detail
