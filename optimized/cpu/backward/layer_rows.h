#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/cpu/backward/call_views.h"
#include "optimized/cpu/operators/tensor.h"

/// The tokens and weights of a layer's backward pass: all tokens of the call together, whatever sequence they belong to.
namespace samestate::cpu {

/// Columns of some rows of a block.
template <class T, class B>
[[nodiscard]] TensorRows<T> columns_of(B& x, std::int64_t first, std::int64_t count, std::int64_t column,
                                       std::int64_t width) {
  return {x.row(first) + column, count, width, x.stride};
}

/// Blocks from tensors of a call, of any strides, and back.
class LayerRows {
 public:
  /// The rows [first, first + count) are the tokens of sequence `number`.
  struct SequenceRows {
    std::int64_t number, first, count;
  };

  /// `call` has to live as long. 16-bit values are kept in `kept`; gradients are written in `output`.
  LayerRows(const OperatorArguments& call, const Contract& contract)
      : call_(call), kept_(contract.input), output_(contract.output), unit_(MatrixUnit::of(contract)) {
    for (std::int64_t n = 0; n < sequences_of_call(call); ++n) {
      sequences_.push_back({n, rows_, tokens_of_sequence(call, n).count});
      rows_ += sequences_.back().count;
    }
  }

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] const std::vector<SequenceRows>& sequences() const { return sequences_; }
  [[nodiscard]] const MatrixUnit& unit() const { return unit_; }
  [[nodiscard]] Format kept() const { return kept_; }

  /// The tokens of all sequences, one row each.
  [[nodiscard]] Block gathered(std::string_view name) const {
    const View<const float, 3> from = given<3>(call_, name);
    Block to;
    to.resize(rows_, from.shape[2]);
    each_row([&](std::int64_t row, std::int64_t b, std::int64_t t) {
      for (std::int64_t c = 0; c < to.columns; ++c) to.row(row)[c] = from(b, t, c);
    });
    return to;
  }

  /// Writes a gradient of the tokens; rows that belong to no sequence stay as they are.
  void scatter(std::string_view name, Block x) const {
    round_in_place(x, output_);
    const View<float, 3> to = view_of<3>(call_.output(name));
    each_row([&](std::int64_t row, std::int64_t b, std::int64_t t) {
      for (std::int64_t c = 0; c < x.columns; ++c) to(b, t, c) = x.row(row)[c];
    });
  }

  /// A weight of the call.
  [[nodiscard]] Block matrix(std::string_view name) const {
    const View<const float, 2> from = given<2>(call_, name);
    Block to;
    to.resize(from.shape[0], from.shape[1]);
    for (std::int64_t i = 0; i < to.rows; ++i) {
      for (std::int64_t j = 0; j < to.columns; ++j) to.row(i)[j] = from(i, j);
    }
    return to;
  }

  /// x W^T, as it is kept.
  [[nodiscard]] Block projected(const Block& x, std::string_view weight) const {
    Block turned, y;
    transpose(matrix(weight), turned);
    product(unit_, x, turned, y);
    round_in_place(y, kept_);
    return y;
  }

  /// dy W, as it is kept.
  [[nodiscard]] Block reversed(const Block& dy, std::string_view weight) const {
    Block dx;
    product(unit_, dy, matrix(weight), dx);
    round_in_place(dx, kept_);
    return dx;
  }

  /// Writes the gradient of a weight, dy^T x.
  void write_weight(std::string_view name, const Block& dy, const Block& x) const {
    Block turned, sums;
    transpose(dy, turned);
    product(unit_, turned, x, sums);
    round_in_place(sums, output_);
    const View<float, 2> to = view_of<2>(call_.output(name));
    for (std::int64_t i = 0; i < sums.rows; ++i) {
      for (std::int64_t j = 0; j < sums.columns; ++j) to(i, j) = sums.row(i)[j];
    }
  }

 private:
  /// Calls visit(row, batch, token).
  template <class Visit>
  void each_row(Visit&& visit) const {
    for (const SequenceRows& of : sequences_) {
      const Tokens tokens = tokens_of_sequence(call_, of.number);
      for (std::int64_t t = 0; t < of.count; ++t) visit(of.first + t, tokens.batch, tokens.begin + t);
    }
  }

  const OperatorArguments& call_;
  Format kept_, output_;
  std::int64_t rows_ = 0;
  MatrixUnit unit_;
  std::vector<SequenceRows> sequences_;
};

/// x + y in the format in which they are kept.
inline void add_kept(Block& x, const Block& y, Format kept) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
  round_in_place(x, kept);
}

}  // namespace samestate::cpu
