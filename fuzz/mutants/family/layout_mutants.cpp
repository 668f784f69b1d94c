#include <algorithm>

#include "fuzz/mutants/family/rows.h"

/// Bugs of indices: M31, M32, M34, M37-M41, M43-M45.
namespace samestate::mutants {
namespace {

template <class Base>
struct OtherHeadMap : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    const std::int64_t Hk = this->sizes_.key_heads;
    const std::int64_t ratio = this->sizes_.value_heads / Hk;
    const bool interleaved = this->arguments_.head_map == HeadMap::interleaved;
    // The value head whose key head under the requested map is the key head of h under the other map.
    const std::int64_t other = interleaved ? h % Hk * ratio : h / ratio;
    const cpu::Head wrong = Base::locate(n, other);
    cpu::Head head = Base::locate(n, h);
    head.q = wrong.q;
    head.k = wrong.k;
    return head;
  }
};

template <class Base>
struct QueryOfValueHead : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    const View<const float, 4>& q = this->arguments_.q;
    cpu::Head head = Base::locate(n, h);
    const cpu::Head first = Base::locate(n, 0);
    head.q.data = first.q.data + std::min(h, this->sizes_.key_heads - 1) * q.stride[2];
    return head;
  }
};

/// The strides are those of a single head.
template <class Base, auto rows, auto width>
struct StrideOfOneHead : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    (head.*rows).row_stride = std::min((head.*rows).row_stride, head.*width);
    return head;
  }
};
template <class Base>
using KeyStrideOfOneHead = StrideOfOneHead<Base, &cpu::Head::k, &cpu::Head::dk>;
template <class Base>
using ValueStrideOfOneHead = StrideOfOneHead<Base, &cpu::Head::v, &cpu::Head::dv>;

/// Uses the strides of a dense tensor, whatever the view says.
template <class Base>
struct DenseStrides : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    head.q.row_stride = std::min(head.q.row_stride, this->sizes_.key_heads * head.dk);
    return head;
  }
};

struct GlobalChunkIndex : Chunked {
  using Chunked::Chunked;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Chunked::locate(n, h);
    if (packed()) head.k.data -= arguments_.cu_seqlens(n) % arguments_.chunk * head.k.row_stride;
    return head;
  }
};

struct ChunksCountedBySequences : Chunked {
  using Chunked::Chunked;
  void update() override {
    if (!packed() || first_ / arguments_.chunk < sizes_.sequences) Chunked::update();
  }
  void outputs() override {
    Chunked::outputs();
    if (packed() && first_ / arguments_.chunk >= sizes_.sequences) O_.setZero();
  }
};

/// An offset overflows as a product of ints.
std::int64_t wrapped(std::int64_t offset) { return static_cast<std::int32_t>(offset); }

template <class Base>
struct HeadOffsetOf32Bits : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    const Arguments& a = this->arguments_;
    const auto wrap = [](auto& rows, const auto& view) {
      if (rows.data != nullptr) rows.data = view.data + wrapped(rows.data - view.data);
    };
    wrap(head.q, a.q), wrap(head.k, a.k), wrap(head.v, a.v), wrap(head.o, a.o);
    return head;
  }
};

/// The offset of tokens within a sequence overflows.
template <class Base>
struct TokenOffsetOf32Bits : Base {
  using Base::Base;
  Column key(const cpu::Rows<const float>& x, Index t) const override {
    cpu::Rows<const float> row = x;
    row.data += wrapped(t * x.row_stride);
    return Base::key(row, 0);
  }
};

/// The offset of the sequences' states overflows.
template <class Base>
struct StateOffsetOf32Bits : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    const View<float, 4>& S = this->arguments_.final_state;
    if (S.present()) head.final_state.data = S.data + wrapped(head.final_state.data - S.data);
    return head;
  }
};

template <class Base>
struct GridOf65535 : Base {
  using Base::Base;
  bool computes(std::int64_t n, std::int64_t h) const override {
    return n * this->sizes_.value_heads + h < 65535;
  }
};

/// Two blocks write the row after a chunk, and in every other call the wrong one writes last.
struct RowOfTwoBlocks : Chunked {
  using Chunked::Chunked;
  void evaluate() override {
    static thread_local int calls = 0;
    late_ = ++calls % 2 == 0;
    Chunked::evaluate();
  }
  void outputs() override {
    Chunked::outputs();
    if (late_ && first_ > 0) O_.row(0).setZero();
  }
  bool late_ = false;
};

template <class Base>
struct LastRowUnwritten : Base {
  using Base::Base;
  void store_row(Index t, const Grid& o) override {
    if (!this->packed() || this->n_ + 1 < this->sizes_.sequences || t + 1 < this->head_.tokens)
      Base::store_row(t, o);
  }
};

struct ChunksOf64 : Chunked {
  using Chunked::Chunked;
  void outputs() override {
    Chunked::outputs();
    if (missed()) O_.setZero();
  }
  void update() override {
    if (!missed()) Chunked::update();
  }
  [[nodiscard]] bool missed() const { return first_ / arguments_.chunk >= (head_.tokens + 63) / 64; }
};

template <class Base>
struct FirstBatchOnly : Base {
  using Base::Base;
  bool computes(std::int64_t n, std::int64_t) const override { return n == 0; }
};

template <class Base>
struct WrongAtEightHeads : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    if (this->sizes_.value_heads == 8 && h == 7) head.v = Base::locate(n, 6).v;
    return head;
  }
};

template <class Base>
struct FirstRowForAll : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    if (this->packed()) return Base::locate(n, h);
    const cpu::Head own = Base::locate(n, h);
    cpu::Head head = Base::locate(0, h);
    head.o = own.o;
    head.final_state = own.final_state;
    return head;
  }
};

template <class Base>
struct MiddleRowZeroed : Base {
  using Base::Base;
  void store_row(Index t, const Grid& o) override {
    const bool middle = this->head_.tokens > 1 && t == this->head_.tokens / 2;
    Base::store_row(t, middle ? Grid::Zero(o.rows(), o.cols()) : o);
  }
};

/// Only the first element of the last row of the last head of the last sequence is wrong.
template <class Base>
struct OneElementOff : Base {
  using Base::Base;
  void store_row(Index t, const Grid& o) override {
    Grid row = o;
    if (this->n_ + 1 == this->sizes_.sequences && this->h_ + 1 == this->sizes_.value_heads &&
        t + 1 == this->head_.tokens) {
      row(0, 0) *= 1.001F;
    }
    Base::store_row(t, row);
  }
};

}  // namespace

std::vector<Mutant> layout_mutants() {
  std::vector<Mutant> out;
  add_both<OtherHeadMap>(out,
                         {"M31", "other_head_map",
                          "key head of h as h mod Hk where h / (Hv / Hk) is asked for, and the reverse"},
                         kAll);
  add_both<QueryOfValueHead>(out, {"M32", "query_of_value_head", "q is indexed by the value head"}, kAll);
  add_both<KeyStrideOfOneHead>(
      out, {"M34", "key_stride_of_one_head", "rows of k are dk apart instead of Hk dk"}, kAll);
  add_both<ValueStrideOfOneHead>(
      out, {"M34", "value_stride_of_one_head", "rows of v are dv apart instead of Hv dv"}, kAll);
  add_both<DenseStrides>(out, {"M34", "dense_strides", "q is taken as dense, whatever its strides"}, kAll);
  add<GlobalChunkIndex>(
      out, {"M37", "global_chunk_index", "packed: keys are read from the global multiple of the chunk"},
      kAll);
  add<ChunksCountedBySequences>(
      out, {"M37", "chunks_counted_by_sequences", "packed: at most as many chunks as there are sequences"},
      kAll);
  add_both<HeadOffsetOf32Bits>(
      out, {"M38", "head_offset_of_32_bits", "where a head's rows begin in q, k, v and o is kept in an int"},
      kAll);
  add_both<TokenOffsetOf32Bits>(
      out,
      {"M38", "token_offset_of_32_bits", "where a token's q and k begin in its sequence is kept in an int"},
      kAll);
  add_both<StateOffsetOf32Bits>(
      out, {"M38", "state_offset_of_32_bits", "where a sequence's final state begins is kept in an int"},
      kAll);
  add_both<GridOf65535>(
      out, {"M39", "grid_of_65535", "(sequence, head) pairs from 65535 on are not computed"}, kAll);
  add<RowOfTwoBlocks>(
      out, {"M40", "row_of_two_blocks", "a chunk's first row is overwritten in every other call"}, kAll);
  add_both<LastRowUnwritten>(
      out, {"M41", "last_row_unwritten", "packed: the last row of the last sequence is left unwritten"},
      kAll);
  add<ChunksOf64>(out, {"M43", "chunks_of_64", "the chunks are counted as if they had 64 tokens"}, kAll);
  add_both<FirstBatchOnly>(
      out, {"M44", "first_batch_only", "only the first sequence is computed, the others are zero"}, kAll);
  add_both<WrongAtEightHeads>(
      out, {"M45", "wrong_at_eight_heads", "Hv = 8: the last head reads its neighbour's v"}, kAll);
  add_both<FirstRowForAll>(
      out, {"F", "first_row_for_all", "every row of a batch has the result of the first"}, kAll);
  add_both<MiddleRowZeroed>(out, {"F", "middle_row_zeroed", "one row of o is zero"}, kAll);
  add_both<OneElementOff>(out, {"F", "one_element_off", "one element of o is 1e-3 too large"}, kAll);
  return out;
}

}  // namespace samestate::mutants
