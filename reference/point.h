#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Rounding points have names. Each reference header declares the points of its equation in a table and marks
/// every place in the code with such a name. One name is one decision of a kernel, wherever it is marked in
/// the source. A piece that several systems share (a softmax, a convolution) declares its points once, and
/// they have the same names in all of these systems.
namespace samestate {

/// The way in which a kernel of low precision rounds at a point.
enum class PointUse : std::uint8_t {
  stored,   ///< it may keep a result in 16 bits
  product,  ///< a matrix unit may round the operands of a product to tf32
  both      ///< the product is computed on a matrix unit, and its result may be kept
};

/// How a softmax whose weights are rounded at the point takes its keys.
enum class PointKeys : std::uint8_t { none, whole, tiles };

/// The order in which a search takes the points of several tables: first a layer's own points, then those of
/// the equations that it consists of, then those of other evaluations of such an equation (the explicit
/// chunk, a stage by itself).
enum class PointTier : std::uint8_t { layer, equation, evaluation };

struct PointRow {
  std::string_view name;   ///< unique in its table
  std::string_view means;  ///< one sentence: what is stored or multiplied at the point, after which operation
  PointUse use = PointUse::stored;
  /// Many kernels treat the points of one table that share this word alike: they store all of them or none.
  std::string_view alike = {};
  /// The full name of the point that this one corresponds to in another order of evaluation or in a stage of
  /// a layer. A contract that switches that point switches this one too.
  std::string_view of = {};
  /// Kernels keep fp32 here: a contract rounds at the point only if its text switches it on.
  bool only_if_named = false;
};

class Point;

/// The points of one system or shared piece, in the order in which a search takes them.
struct PointTable {
  std::string_view name;  ///< unique
  PointTier tier = PointTier::equation;
  std::span<const PointRow> rows;
  PointKeys keys = PointKeys::none;

  /// The point of that name. An unknown name does not compile.
  consteval Point operator[](std::string_view point) const;
};

/// One rounding point: a reference to its row. Two points are equal if they are the same row of the same
/// table.
class Point {
 public:
  /// `row` belongs to `table`, and both must live as long as the process.
  constexpr Point(const PointTable& table, const PointRow& row) : table_(&table), row_(&row) {}

  [[nodiscard]] const PointTable& table() const { return *table_; }
  [[nodiscard]] const PointRow& row() const { return *row_; }
  /// The name as records and contracts write it: `softmax_attention.scores`.
  [[nodiscard]] std::string name() const { return std::string(table_->name).append(".").append(row_->name); }
  friend constexpr bool operator==(const Point& x, const Point& y) { return x.row_ == y.row_; }
  /// Orders points by tier, then by the name of their table, then by their row.
  friend std::strong_ordering operator<=>(const Point& x, const Point& y) {
    if (x.table_->tier != y.table_->tier) return x.table_->tier <=> y.table_->tier;
    if (x.table_ != y.table_) return x.table_->name <=> y.table_->name;
    return x.row_ <=> y.row_;
  }

 private:
  const PointTable* table_;
  const PointRow* row_;
};

consteval Point PointTable::operator[](std::string_view point) const {
  for (const PointRow& row : rows) {
    if (row.name == point) return {*this, row};
  }
  throw "no point of this name in the table";  // NOLINT: makes the call no constant expression
}

}  // namespace samestate
