#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "fuzz/mutants/family/rows.h"

/// Bugs that only some values of a call's fields show (optimized/kernel.h): strides that differ between
/// tensors, tokens of no sequence, a final state in place or not asked for, and earlier calls. Where one
/// tensor is read with another's strides, it is the one whose own strides reach further
/// (harness/run/guarded_tensor.h).
namespace samestate::mutants {
namespace {

/// Reads one tensor's rows of a head where another tensor's strides would place them.
template <class Base, auto rows, auto view, auto other_rows, auto other_view>
struct StridesOfAnother : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    auto& own = head.*rows;
    const auto& other = head.*other_rows;
    if (own.data == nullptr || other.data == nullptr) return head;
    own.data = (this->arguments_.*view).data + (other.data - (this->arguments_.*other_view).data);
    own.row_stride = other.row_stride;
    return head;
  }
};
template <class Base>
using QueryStridesOfKey = StridesOfAnother<Base, &cpu::Head::q, &Arguments::q, &cpu::Head::k, &Arguments::k>;
template <class Base>
using ValueStridesOfOutput =
    StridesOfAnother<Base, &cpu::Head::v, &Arguments::v, &cpu::Head::o, &Arguments::o>;
template <class Base>
using BetaStridesOfGate =
    StridesOfAnother<Base, &cpu::Head::beta, &Arguments::beta, &cpu::Head::g, &Arguments::g>;
template <class Base>
using InitialStridesOfFinal = StridesOfAnother<Base, &cpu::Head::initial_state, &Arguments::initial_state,
                                               &cpu::Head::final_state, &Arguments::final_state>;

/// Assumes that the heads of a token lie within its stride, which is false if heads come first.
template <class Base>
struct HeadsWithinATokensRow : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    const View<const float, 4>& v = this->arguments_.v;
    head.v.data = Base::locate(n, 0).v.data + h * std::min(v.stride[2], v.stride[1] / v.shape[2]);
    return head;
  }
};

template <class Base>
struct OutsideZeroed : Base {
  using Base::Base;
  void outside() const override {
    if (!this->packed()) return;
    const View<float, 4>& o = this->arguments_.o;
    const auto zero = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t h = 0; h < o.shape[2]; ++h) std::fill_n(&o(0, t, h, 0), o.shape[3], 0.0F);
      }
    };
    zero(0, this->arguments_.cu_seqlens(0));
    zero(this->arguments_.cu_seqlens(this->sizes_.sequences), o.shape[1]);
  }
};

template <class Base>
struct FirstSequenceFromZero : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    if (!this->packed() || n > 0) return head;
    const std::int64_t lead = this->arguments_.cu_seqlens(0);
    head.tokens += lead;
    const auto back = [&](auto& rows) {
      if (rows.data != nullptr) rows.data -= lead * rows.row_stride;
    };
    back(head.q), back(head.k), back(head.v), back(head.g), back(head.beta), back(head.o);
    return head;
  }
};

template <class Base>
struct LastSequenceToTheEnd : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    if (this->packed() && n + 1 == this->sizes_.sequences)
      head.tokens = this->sizes_.tokens - this->arguments_.cu_seqlens(n);
    return head;
  }
};

/// Reads a tile of a whole chunk and multiplies what lies past the end of the sequence by zero.
struct TailTimesZero : Chunked {
  using Chunked::Chunked;
  void outputs() override {
    Chunked::outputs();
    if (!packed()) return;
    const std::int64_t begin = arguments_.cu_seqlens(n_) + first_;
    const std::int64_t end = std::min(begin + arguments_.chunk, sizes_.tokens);
    for (std::int64_t t = begin + valid_; t < end; ++t) O_.array() += 0.0F * arguments_.v(0, t, h_, 0);
  }
};

struct NoUpdateWithoutFinal : Chunked {
  using Chunked::Chunked;
  void update() override {
    if (arguments_.final_state.present()) Chunked::update();
  }
};
struct NoLastWriteWithoutFinal : Recurrent {
  using Recurrent::Recurrent;
  void write() override {
    if (arguments_.final_state.present() || t_ + 1 < head_.tokens) Recurrent::write();
  }
};

/// This applies to more than one token: decoding would show it.
template <class Base>
struct FinalClearedFirst : Base {
  using Base::Base;
  void outside() const override {
    const View<float, 4>& S = this->arguments_.final_state;
    if (!S.present() || this->sizes_.tokens < 2) return;
    for (std::int64_t n = 0; n < S.shape[0]; ++n) {
      for (std::int64_t h = 0; h < S.shape[1]; ++h) {
        for (std::int64_t l = 0; l < S.shape[2]; ++l) std::fill_n(&S(n, h, l, 0), S.shape[3], 0.0F);
      }
    }
  }
};

/// Like a table of chunks that is made once for a tensor of offsets.
template <class Base>
struct OffsetsKeptByAddress : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    if (!this->packed()) return Base::locate(n, h);
    struct Known {
      const std::int64_t* address = nullptr;
      std::int64_t sequences = 0, tokens = 0;
      std::vector<std::int64_t> offsets;
    };
    static thread_local Known known;
    const View<const std::int64_t, 1>& given = this->arguments_.cu_seqlens;
    if (known.address != given.data || known.sequences != this->sizes_.sequences ||
        known.tokens != this->sizes_.tokens) {
      known = {given.data, this->sizes_.sequences, this->sizes_.tokens, {}};
      for (std::int64_t i = 0; i < given.shape[0]; ++i) known.offsets.push_back(given(i));
    }
    Arguments kept = this->arguments_;
    kept.cu_seqlens = row_major<const std::int64_t, 1>(known.offsets.data(), given.shape);
    return cpu::head_of(kept, this->sizes_, n, h);
  }
};

/// Like a graph that is captured once for a shape.
template <class Base>
struct ScaleKeptByShape : Base {
  using Base::Base;
  float scale() const override {
    static thread_local std::map<std::pair<std::array<std::int64_t, 4>, std::array<std::int64_t, 4>>, float>
        kept;
    return kept.try_emplace({this->arguments_.q.shape, this->arguments_.v.shape}, Base::scale())
        .first->second;
  }
};

template <class Base>
struct TwoThreadsLoseAHead : Base {
  using Base::Base;
  bool computes(std::int64_t, std::int64_t h) const override {
    return this->arguments_.threads != 2 || h + 1 < this->sizes_.value_heads;
  }
};

/// An offset in bytes overflows a 32-bit product.
template <class Base>
struct ByteOffsetOf32Bits : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    const auto wrap = [](auto& rows, const auto& view) {
      if (rows.data == nullptr) return;
      const auto bytes = static_cast<std::uint32_t>(4 * (rows.data - view.data));
      rows.data = view.data + bytes / 4;
    };
    wrap(head.q, this->arguments_.q), wrap(head.k, this->arguments_.k);
    wrap(head.initial_state, this->arguments_.initial_state);
    return head;
  }
};

template <class Base>
struct GateOffsetOf32Bits : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    const auto wrap = [](auto& rows, const auto& view) {
      if (rows.data != nullptr) rows.data = view.data + static_cast<std::int32_t>(rows.data - view.data);
    };
    wrap(head.g, this->arguments_.g), wrap(head.beta, this->arguments_.beta);
    return head;
  }
};

}  // namespace

std::vector<Mutant> interface_mutants() {
  std::vector<Mutant> out;
  add_both<QueryStridesOfKey>(out, {"F", "query_strides_of_key", "q is read with the strides of k"}, kAll);
  add_both<ValueStridesOfOutput>(out, {"F", "value_strides_of_output", "v is read with the strides of o"},
                                 kAll);
  add_both<BetaStridesOfGate>(out, {"F", "beta_strides_of_gate", "beta is read with the strides of g"},
                              kGatedDelta);
  add_both<InitialStridesOfFinal>(
      out, {"F", "initial_strides_of_final", "the initial state is read with the strides of the final one"},
      kAll);
  add_both<HeadsWithinATokensRow>(
      out,
      {"F", "heads_within_a_tokens_row", "a head's values are at most a token's stride / Hv from the next"},
      kAll);
  add_both<OutsideZeroed>(
      out, {"F", "outside_zeroed", "packed: rows of o that belong to no sequence are zeroed"}, kAll);
  add_both<FirstSequenceFromZero>(
      out, {"F", "first_sequence_from_zero", "packed: the first sequence begins at token 0"}, kAll);
  add_both<LastSequenceToTheEnd>(
      out, {"F", "last_sequence_to_the_end", "packed: the last sequence ends at the last token"}, kAll);
  add<TailTimesZero>(
      out, {"F", "tail_times_zero", "packed: values behind a sequence's end are multiplied by zero"}, kAll);
  add<NoUpdateWithoutFinal>(
      out, {"F", "no_update_without_final", "without a final state the chunks leave none to the next"}, kAll);
  add<NoLastWriteWithoutFinal>(
      out, {"F", "no_last_write_without_final", "without a final state the last token is not written"}, kAll);
  add_both<FinalClearedFirst>(
      out, {"F", "final_cleared_first", "the final state is zeroed before the initial one is read"}, kAll);
  add_both<OffsetsKeptByAddress>(
      out, {"F", "offsets_kept_by_address", "packed: offsets of an earlier call on the same memory"}, kAll);
  add_both<ScaleKeptByShape>(out, {"F", "scale_kept_by_shape", "the scale of the first call of this shape"},
                             kAll);
  add_both<TwoThreadsLoseAHead>(out, {"F", "two_threads_lose_a_head", "on two threads the last head is zero"},
                                kAll);
  add_both<ByteOffsetOf32Bits>(
      out,
      {"M38", "byte_offset_of_32_bits",
       "where a head's rows begin in q, k and the initial state, in bytes of 32 bits"},
      kAll);
  add_both<GateOffsetOf32Bits>(
      out, {"M38", "gate_offset_of_32_bits", "where a head's g and beta begin is kept in an int"},
      kGatedDelta);
  return out;
}

}  // namespace samestate::mutants
