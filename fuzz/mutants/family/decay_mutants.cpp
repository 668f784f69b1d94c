#include <algorithm>
#include <cmath>

#include "fuzz/mutants/family/rows.h"
#include "optimized/cpu/rounding.h"

/// Bugs of the decay: masks and exponentials (M01-M11, M43), and which decay applies to what (M14-M16, M21,
/// M30).
namespace samestate::mutants {
namespace {

struct UnmaskedExponential : Chunked {
  using Chunked::Chunked;
  void factors() override {
    Chunked::factors();
    if (!decays()) return;
    for (Index i = 0; i < L_; ++i) {
      for (Index j = i + 1; j < L_; ++j) E_(i, j) = 0.0F * exponential(G_(i) - G_(j));
    }
  }
  void scores() override {
    P_ = multiply(rounded(Q_, contract_.qk), rounded(K_, contract_.qk).transpose()).cwiseProduct(E_);
  }
};

struct TailGatesZero : Chunked {
  using Chunked::Chunked;
  void load() override {
    Chunked::load();
    pad(arguments_.chunk);
  }
  void cumulate() override {
    Chunked::cumulate();
    G_.tail(L_ - valid_).setZero();
  }
};

/// In a call of one chunk that is longer than a tile of 64, the last row does not see the initial state.
struct LastRowOfOneChunkForgets : Chunked {
  using Chunked::Chunked;
  void factors() override {
    Chunked::factors();
    if (valid_ == head_.tokens && valid_ == arguments_.chunk && valid_ > 64) exp_G_(valid_ - 1) = 0.0F;
  }
};

struct EqualGatesDropped : Chunked {
  using Chunked::Chunked;
  float factor(Index i, Index j) const override {
    return i != j && G_(i) == G_(j) ? 0.0F : Chunked::factor(i, j);
  }
};

struct EndDecayFromWrongRow : Chunked {
  using Chunked::Chunked;
  Index end_row() const override { return std::max<Index>(L_ - 7, 0); }
};

/// Right in a whole chunk but wrong in the tail: it uses the row of a whole chunk, clamped to the tail.
struct CarriedDecayOneShort : Chunked {
  using Chunked::Chunked;
  void factors() override {
    Chunked::factors();
    if (decays() && L_ > 1) carried_ = exponential(G_(L_ - 2));
  }
};

struct ExclusiveReadout : Chunked {
  using Chunked::Chunked;
  void factors() override {
    Chunked::factors();
    if (!decays()) return;
    for (Index i = 0; i < L_; ++i) exp_G_(i) = exponential(G_(i) - g_(i));
  }
};

struct ExclusivePairs : Chunked {
  using Chunked::Chunked;
  float factor(Index i, Index j) const override {
    return i == j ? 1.0F : exponential(std::min(G_(i) - g_(i) - G_(j), 0.0F));
  }
};

/// Each sum of a chunk lacks its token's own gate, so that the last gate of a chunk is lost.
struct ExclusiveSum : Chunked {
  using Chunked::Chunked;
  void cumulate() override {
    Chunked::cumulate();
    for (Index i = L_ - 1; i > 0; --i) G_(i) = G_(i - 1);
    G_(0) = 0.0F;
  }
};

struct FutureAnchor : Chunked {
  using Chunked::Chunked;
  float factor(Index i, Index j) const override {
    const float anchor = G_(L_ - 1);
    return exponential(std::min(G_(i) - anchor, 80.0F)) * exponential(anchor - G_(j));
  }
};

struct FactoredExponential : Chunked {
  using Chunked::Chunked;
  float factor(Index i, Index j) const override { return exponential(G_(i)) * exponential(-G_(j)); }
};

struct HardResetUnclamped : Chunked {
  using Chunked::Chunked;
  float gate(float g) const override { return g; }
};

template <class Base>
struct SoftReset : Base {
  using Base::Base;
  float gate(float g) const override {
    return Base::gate(static_cast<float>(std::log(std::exp(static_cast<double>(g)) + 1e-10)));
  }
};

struct SumFromTheEnd : Chunked {
  using Chunked::Chunked;
  void cumulate() override {
    Chunked::cumulate();
    Column suffix = g_;
    for (Index i = L_ - 1; i-- > 0;) suffix(i) += suffix(i + 1);
    const float total = G_(L_ - 1);
    for (Index i = 0; i < L_; ++i) G_(i) = total - suffix(i) + g_(i);
  }
};

struct GatesSummedOver64 : Chunked {
  using Chunked::Chunked;
  void cumulate() override {
    Chunked::cumulate();
    float before = 0.0F;
    for (Index t = first_ / 64 * 64; t < first_; ++t) before += gate(*head_.g.row(t));
    G_.array() += before;
  }
};

/// e^g is replaced by g: the gates between two tokens are multiplied directly.
struct GateAsMultiplierChunked : Chunked {
  using Chunked::Chunked;
  float factor(Index i, Index j) const override {
    float product = 1.0F;
    for (Index m = j + 1; m <= i; ++m) product *= g_(m);
    return product;
  }
  void factors() override {
    Chunked::factors();
    if (!decays()) return;
    exp_G_(0) = g_(0);
    for (Index i = 1; i < L_; ++i) exp_G_(i) = exp_G_(i - 1) * g_(i);
    for (Index i = 0; i < L_; ++i) to_end_(i) = E_(L_ - 1, i);
    carried_ = exp_G_(L_ - 1);
  }
};

struct GateAsMultiplierRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void load() override {
    Recurrent::load();
    if (decays()) alpha_ = *head_.g.row(t_);
  }
};

template <class Base>
struct ExponentiatedTwice : Base {
  using Base::Base;
  float gate(float g) const override { return Base::gate(std::exp(g)); }
};

template <class Base>
struct NoDecay : Base {
  using Base::Base;
  float gate(float) const override { return 0.0F; }
};

template <class Base>
struct DecayTwice : Base {
  using Base::Base;
  float gate(float g) const override { return Base::gate(2.0F * g); }
};

template <class Base>
struct ZeroKeyIsPadding : Base {
  using Base::Base;
  float given_gate(Index t) const override {
    return Base::key(Base::head_.k, t).isZero(0.0F) ? 0.0F : Base::given_gate(t);
  }
};

struct StateNotDecayedChunked : Chunked {
  using Chunked::Chunked;
  void factors() override {
    Chunked::factors();
    carried_ = 1.0F;
  }
};

struct StateNotDecayedRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void decay() override {}
  void correct() override {
    const Grid kept = S_;
    Recurrent::decay();
    Recurrent::correct();
    S_ = kept;
  }
  void read() override {
    const Grid kept = S_;
    Recurrent::decay();
    Recurrent::read();
    S_ = kept;
  }
};

struct PaddingDecaysChunked : Chunked {
  using Chunked::Chunked;
  void load() override {
    Chunked::load();
    if (!decays()) return;
    for (Index i = 0; i < L_; ++i) {
      if (K_.row(i).isZero(0.0F)) g_(i) -= 0.05F;
    }
  }
};

struct PaddingDecaysRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void load() override {
    Recurrent::load();
    if (k_.isZero(0.0F)) alpha_ *= 0.95F;
  }
};

template <class Base>
struct HalfExponential : Base {
  using Base::Base;
  float exponential(float x) const override { return cpu::to_fp16(Base::exponential(x)); }
};

template <class Base>
struct GateOfFirstHead : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    if (head.g.data) head.g = Base::locate(n, 0).g;
    return head;
  }
};

template <class Base>
struct GateIgnoresSequenceStart : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    if (head.g.data) head.g = Base::locate(0, h).g;
    return head;
  }
};

template <class Base>
struct GateOfTheTokenBefore : Base {
  using Base::Base;
  float given_gate(Index t) const override { return t == 0 ? 0.0F : Base::given_gate(t - 1); }
};

template <class Base>
struct GateOfTheTokenAfter : Base {
  using Base::Base;
  float given_gate(Index t) const override {
    return t + 1 == this->head_.tokens ? 0.0F : Base::given_gate(t + 1);
  }
};

template <class Base>
struct PowersOfTwo : Base {
  using Base::Base;
  float gate(float g) const override { return Base::gate(g * 0.69314718F); }
};

template <class Base>
struct DecayClamped : Base {
  using Base::Base;
  float gate(float g) const override { return Base::gate(std::max(g, -20.0F)); }
};

}  // namespace

std::vector<Mutant> decay_mutants() {
  std::vector<Mutant> out;
  add<UnmaskedExponential>(
      out, {"M01", "unmasked_exponential", "exp(G_i - G_j) over the whole square, then times the 0/1 mask"},
      kGated);
  add<TailGatesZero>(
      out, {"M02", "tail_gates_zero", "rows past the tail have G = 0 and no mask: exp(0 - G_j)"}, kGated);
  add<EqualGatesDropped>(
      out,
      {"M03", "equal_gates_dropped", "x < 0 instead of x <= 0: pairs with no decay between them are dropped"},
      kGated);
  add<EndDecayFromWrongRow>(
      out, {"M04", "end_decay_from_wrong_row", "the decay to the end of a chunk is read from row C - 7"},
      kGated);
  add<CarriedDecayOneShort>(
      out, {"M04", "carried_decay_one_short", "the state is decayed by the sum without its last gate"},
      kGated);
  add<ExclusiveReadout>(
      out, {"M05", "exclusive_readout", "the state is read with the sum of gates before the token"}, kGated);
  add<ExclusivePairs>(out, {"M05", "exclusive_pairs", "pairs of a chunk lack the later token's gate"},
                      kGated);
  add<FutureAnchor>(out, {"M06", "future_anchor", "exponents are split at the chunk's last row"}, kGated);
  add<FactoredExponential>(
      out, {"M08", "factored_exponential", "exp(G_i) exp(-G_j) instead of exp(G_i - G_j)"}, kGated);
  add<HardResetUnclamped>(
      out, {"M09", "hard_reset_unclamped", "g = -1e38 takes all bits of the sums after it"}, kGated);
  add_both<SoftReset>(out, {"M10", "soft_reset", "log(alpha + 1e-10): alpha = 0 does not forget all"},
                      kGated);
  add<SumFromTheEnd>(out, {"M11", "sum_from_the_end", "cumulative sum as total - suffix + x"}, kGated);
  add<GateAsMultiplierChunked>(out, {"M14", "gate_as_multiplier", "g multiplies the state instead of exp(g)"},
                               kGated);
  add<GateAsMultiplierRecurrent>(
      out, {"M14", "gate_as_multiplier", "g multiplies the state instead of exp(g)"}, kGated);
  add_both<ExponentiatedTwice>(
      out, {"M15", "exponentiated_twice", "alpha handed to an interface that expects log alpha"}, kGated);
  add_both<NoDecay>(out, {"M16", "no_decay", "S <- S + ..., the decay is left out"}, kGated);
  add<StateNotDecayedChunked>(
      out, {"M21", "state_not_decayed", "the read is decayed, the state that is carried is not"}, kGated);
  add<StateNotDecayedRecurrent>(
      out, {"M21", "state_not_decayed", "the read is decayed, the state that is kept is not"}, kGated);
  add_both<DecayTwice>(out, {"M21", "decay_twice", "the decay is applied twice"}, kGated);
  add<PaddingDecaysChunked>(out, {"M30", "padding_decays", "tokens of zeros decay the state"}, kGated);
  add<PaddingDecaysRecurrent>(out, {"M30", "padding_decays", "tokens of zeros decay the state"}, kGated);
  add_both<GateOfFirstHead>(out, {"M35", "gate_of_first_head", "the gate's load omits the head offset"},
                            kGated);
  add_both<GateIgnoresSequenceStart>(
      out, {"M35", "gate_ignores_sequence_start", "the gate's load omits the start of the sequence"}, kGated);
  add<GatesSummedOver64>(
      out, {"M43", "gates_summed_over_64", "the sum of gates starts every 64 tokens whatever the chunk"},
      kGated);
  add_both<HalfExponential>(out, {"M70", "half_exponential", "the exponential is evaluated in fp16"}, kGated);
  add_both<HalfExponential>(
      out,
      {"M70", "half_exponential_in_bf16",
       "the exponential is evaluated in fp16, in a kernel that promises bf16 alone", kOnlyBf16},
      kGated);
  add<ExclusiveSum>(
      out, {"F", "exclusive_sum", "the cumulative sum of a chunk's gates leaves out the token's own gate"},
      kGated);
  add_both<GateOfTheTokenBefore>(
      out, {"F", "gate_of_the_token_before", "the decay is that of the token before"}, kGated);
  add_both<GateOfTheTokenAfter>(out, {"F", "gate_of_the_token_after", "the decay is that of the token after"},
                                kGated);
  add_both<PowersOfTwo>(out, {"F", "powers_of_two", "alpha = 2^g"}, kGated);
  add_both<ZeroKeyIsPadding>(
      out, {"F", "zero_key_is_padding", "a token whose key is zero is taken for padding: no decay"}, kGated);
  add<LastRowOfOneChunkForgets>(
      out,
      {"F", "last_row_of_one_chunk_forgets", "T = chunk > 64: the last row does not see the initial state"},
      kGated);
  add_both<DecayClamped>(out, {"F", "decay_clamped", "g below -20 is -20: e^-20 of the state stays"}, kGated);
  return out;
}

}  // namespace samestate::mutants
