#include <map>
#include <utility>
#include <vector>

#include "fuzz/mutants/family/rows.h"
#include "optimized/cpu/rounding.h"

/// Bugs of the state between tokens, chunks, calls and sequences: M12, M22-M29, M33, M36.
namespace samestate::mutants {
namespace {

/// Matrices that outlive a call, as a serving engine's cache does; there is one set per fault and thread.
template <class Fault>
Grid& memory(std::int64_t n, std::int64_t h) {
  static thread_local std::map<std::pair<std::int64_t, std::int64_t>, Grid> kept;
  return kept[{n, h}];
}

bool same_size(const Grid& a, const Grid& b) { return a.rows() == b.rows() && a.cols() == b.cols(); }

struct OneTokenTailLost : Chunked {
  using Chunked::Chunked;
  void update() override {
    if (!packed() || valid_ != 1 || first_ == 0) Chunked::update();
  }
};

struct LongSequenceTailLost : Chunked {
  using Chunked::Chunked;
  void update() override {
    if (head_.tokens <= 65536 || !last()) Chunked::update();
  }
};

struct StateOfOtherSplit : Chunked {
  using Chunked::Chunked;
  void outputs() override {
    const Grid now = operand_;
    if (first_ / arguments_.chunk % 2 == 1) operand_ = before_;
    Chunked::outputs();
    before_ = operand_ = now;
  }
  Grid before_;
};

struct StateBeforeTail : Chunked {
  using Chunked::Chunked;
  void update() override {
    if (valid_ == arguments_.chunk) Chunked::update();
  }
};
struct StateBeforeLastToken : Recurrent {
  using Recurrent::Recurrent;
  Grid settled(const Grid& S) const override {
    if (t_ + 2 == head_.tokens) before_ = S;
    return Recurrent::settled(S);
  }
  void store_state(const Grid& S) override { Recurrent::store_state(head_.tokens > 1 ? before_ : S); }
  mutable Grid before_;
};

template <class Base, Format format>
struct LowState : Base {
  using Base::Base;
  Grid settled(const Grid& S) const override { return rounded(Base::settled(S), format); }
};
/// Values beyond fp16 become its largest number.
template <class Base>
struct ClippedState : Base {
  using Base::Base;
  Grid settled(const Grid& S) const override {
    return Base::settled(S).cwiseMin(65504.0F).cwiseMax(-65504.0F);
  }
};

template <class Base>
using Bf16State = LowState<Base, Format::bf16>;
template <class Base>
using Fp16State = LowState<Base, Format::fp16>;

template <class Base>
struct SlotNotCleared : Base {
  using Base::Base;
  Grid initial_state() override {
    const Grid S = Base::initial_state();
    const Grid& left = memory<SlotNotCleared>(0, this->h_);
    return this->head_.initial_state.data == nullptr && same_size(S, left) ? left : S;
  }
  void store_state(const Grid& S) override {
    memory<SlotNotCleared>(0, this->h_) = S;
    Base::store_state(S);
  }
};

/// Only in calls of one token: prefill starts from zero as it should.
template <class Base>
struct OneTokenReadsStale : SlotNotCleared<Base> {
  using SlotNotCleared<Base>::SlotNotCleared;
  Grid initial_state() override {
    return this->head_.tokens == 1 ? SlotNotCleared<Base>::initial_state() : Base::initial_state();
  }
};

template <class Base>
struct RestartsFromZero : Base {
  using Base::Base;
  Grid initial_state() override {
    return this->head_.tokens > 1 ? Grid::Zero(this->head_.dk, this->head_.dv) : Base::initial_state();
  }
};

template <class Base>
struct LeaksIntoNextSequence : Base {
  using Base::Base;
  Grid initial_state() override {
    const Grid S = Base::initial_state();
    return this->packed() && this->n_ > 0 ? memory<LeaksIntoNextSequence>(0, this->h_) : S;
  }
  void store_state(const Grid& S) override {
    memory<LeaksIntoNextSequence>(0, this->h_) = S;
    Base::store_state(S);
  }
};

struct WrongCheckpoint : Recurrent {
  using Recurrent::Recurrent;
  Grid initial_state() override {
    const Grid S = Recurrent::initial_state();
    Grid& before = memory<WrongCheckpoint>(n_, h_);
    const bool in_place =
        head_.initial_state.data != nullptr && head_.initial_state.data == head_.final_state.data;
    const Grid used = in_place && same_size(S, before) ? before : S;
    before = S;
    return used;
  }
};

template <class Base>
struct PaddingClearsSlotZero : Base {
  using Base::Base;
  void store_state(const Grid& S) override {
    Base::store_state(S);
    if (this->head_.tokens > 0 || this->n_ == 0) return;
    this->head_ = this->locate(0, this->h_);
    Base::store_state(S);
  }
};

/// The state of a head is stored as [dv, dk]: element (l, c) of a row-major [dk, dv] is read from, or written
/// to, place c dk + l.
Grid reinterpreted(const Grid& S) {
  Grid out(S.rows(), S.cols());
  for (Index l = 0; l < S.rows(); ++l) {
    for (Index c = 0; c < S.cols(); ++c) out(l, c) = S.data()[c * S.rows() + l];
  }
  return out;
}
Grid scattered(const Grid& S) {
  Grid out(S.rows(), S.cols());
  for (Index l = 0; l < S.rows(); ++l) {
    for (Index c = 0; c < S.cols(); ++c) out.data()[c * S.rows() + l] = S(l, c);
  }
  return out;
}
template <class Base>
struct StateTransposed : Base {
  using Base::Base;
  Grid initial_state() override { return reinterpreted(Base::initial_state()); }
  void store_state(const Grid& S) override { Base::store_state(scattered(S)); }
};
template <class Base>
struct FinalStateTransposed : Base {
  using Base::Base;
  void store_state(const Grid& S) override { Base::store_state(scattered(S)); }
};

bool power_of_two(Index n) { return (n & (n - 1)) == 0; }

template <class Base>
struct StateMaskTransposed : Base {
  using Base::Base;
  Grid initial_state() override {
    Grid S = Base::initial_state();
    if (power_of_two(S.rows()) && power_of_two(S.cols())) return S;
    for (Index l = 0; l < S.rows(); ++l) {
      for (Index c = 0; c < S.cols(); ++c) {
        if (l >= S.cols() || c >= S.rows()) S(l, c) = 0.0F;
      }
    }
    return S;
  }
};

template <class Base>
struct InitialStateIgnored : Base {
  using Base::Base;
  Grid initial_state() override { return Grid::Zero(this->head_.dk, this->head_.dv); }
};
template <class Base>
struct InitialStateTransposed : Base {
  using Base::Base;
  Grid initial_state() override { return reinterpreted(Base::initial_state()); }
};
template <class Base>
struct Bf16InitialState : Base {
  using Base::Base;
  Grid initial_state() override { return rounded(Base::initial_state(), Format::bf16); }
};

struct LostBetweenChunks : Chunked {
  using Chunked::Chunked;
  void load() override {
    Chunked::load();
    if (first_ > 0) S_.setZero();
  }
};
struct LastPartialChunkDropped : Chunked {
  using Chunked::Chunked;
  void outputs() override {
    Chunked::outputs();
    if (valid_ < arguments_.chunk) O_.setZero();
  }
  void update() override {
    if (valid_ == arguments_.chunk) Chunked::update();
  }
};

}  // namespace

std::vector<Mutant> state_mutants() {
  std::vector<Mutant> out;
  add<OneTokenTailLost>(
      out, {"M12", "one_token_tail_lost", "packed: a last chunk of one token does not reach the state"},
      kAll);
  add<LongSequenceTailLost>(
      out, {"M12", "long_sequence_tail_lost", "T > 65536: the last chunk does not reach the state"}, kAll);
  add<StateOfOtherSplit>(
      out, {"M22", "state_of_other_split", "states are stored every 2 C tokens and read by chunk index"},
      kAll);
  add<StateBeforeTail>(out, {"M23", "state_before_tail", "the final state lacks the last partial chunk"},
                       kAll);
  add<StateBeforeLastToken>(out, {"M23", "state_before_tail", "the final state lacks the last token"}, kAll);
  add_both<Bf16State>(out, {"M24", "bf16_state", "the state is kept in bf16 between steps"}, kAll);
  add_both<Bf16State>(
      out,
      {"M24", "bf16_state_in_bf16",
       "the state is kept in bf16 between steps, by a kernel that promises bf16 with an fp32 state",
       kOnlyBf16},
      kAll);
  add_both<Fp16State>(out, {"M24", "fp16_state", "the state is kept in fp16 between steps"}, kAll);
  add_both<ClippedState>(out, {"F", "state_clipped", "the state is kept within fp16's 65504"}, kAll);
  add_both<SlotNotCleared>(
      out, {"M25", "slot_not_cleared", "without an initial state the last call's state is read"}, kAll);
  add_both<OneTokenReadsStale>(
      out, {"M25", "one_token_reads_stale", "a new sequence of one token reads the last call's state"}, kAll);
  add_both<RestartsFromZero>(
      out, {"M26", "restarts_from_zero", "a call of several tokens ignores the state it is given"}, kAll);
  add_both<LeaksIntoNextSequence>(
      out, {"M27", "leaks_into_next_sequence", "packed: a sequence starts from the state of the one before"},
      kAll);
  add<WrongCheckpoint>(
      out, {"M28", "wrong_checkpoint", "a call in place continues from the state before the last call"},
      kAll);
  add_both<PaddingClearsSlotZero>(
      out, {"M29", "padding_overwrites_slot_zero", "an empty sequence writes its state over the first one's"},
      kAll);
  add_both<StateTransposed>(out, {"M33", "state_transposed", "the state is read and written as [dv, dk]"},
                            kAll);
  add_both<FinalStateTransposed>(
      out, {"M33", "final_state_transposed", "the final state is written as [dv, dk]"}, kAll);
  add_both<StateMaskTransposed>(out,
                                {"M36", "state_mask_transposed",
                                 "the initial state is masked by [dv, dk] where sizes are no powers of two"},
                                kAll);
  add_both<Bf16InitialState>(
      out, {"M24", "bf16_state_between_calls", "the state that a call is given is rounded to bf16", {"fp32"}},
      kAll);
  add_both<InitialStateIgnored>(out, {"F", "initial_state_ignored", "every call starts from zero"}, kAll);
  add_both<InitialStateTransposed>(
      out, {"F", "initial_state_transposed", "the initial state is read as [dv, dk]"}, kAll);
  add<LostBetweenChunks>(out, {"F", "lost_between_chunks", "every chunk starts from zero"}, kAll);
  add<LastPartialChunkDropped>(
      out, {"F", "last_partial_chunk_dropped", "the last, partial chunk is not computed"}, kAll);
  return out;
}

}  // namespace samestate::mutants
