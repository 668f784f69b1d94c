#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/kernel.h"

/// Chooses which of several device kernels evaluates a call: the first row of a table that keeps the contract
/// and whose limits include the call's shape. This is host code without CUDA, so the tests can ask it for
/// every shape of the plan.
namespace samestate::cuda {

/// The properties on which a choice may depend.
struct CallShape {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  ///< tokens of the longest sequence
  std::int64_t value_heads = 1;
  std::int64_t dk = 1, dv = 1;
  std::int64_t chunk = 0;       ///< 0 in the recurrent form
  bool packed = false;          ///< cu_seqlens
  bool delta = false;           ///< true for the delta rules
  std::int64_t all_tokens = 0;  ///< tokens of all sequences; 0 if all are as long as the longest

  /// Value columns of all states: the amount of work that can be divided among independent blocks.
  [[nodiscard]] std::int64_t columns() const { return pairs() * dv; }
  /// How many of them are active at once on average while the longest sequence runs. Blocks that start and
  /// end at different times leave a sixth of that time unused (docs/kernels.md, packed batches).
  [[nodiscard]] std::int64_t busy_columns() const {
    if (all_tokens <= 0 || tokens <= 0) return columns();
    const bool unequal = all_tokens < sequences * tokens;
    return all_tokens * value_heads * dv / tokens * (unequal ? 5 : 6) / 6;
  }
  [[nodiscard]] std::int64_t pairs() const { return sequences * value_heads; }
};

/// `sizes` as read from a call; the chunk is that of the form.
[[nodiscard]] inline CallShape shape_of(const Arguments& a, std::int64_t longest_sequence, bool delta) {
  return {a.sequences(),
          longest_sequence,
          a.v.shape[2],
          a.q.shape[3],
          a.v.shape[3],
          a.chunk,
          a.cu_seqlens.present(),
          delta,
          a.q.shape[0] * a.q.shape[1]};
}

/// A range that includes both ends.
struct Range {
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  std::int64_t least = 0;
  std::int64_t most = kAny;

  [[nodiscard]] constexpr bool holds(std::int64_t x) const { return least <= x && x <= most; }
};

/// The shapes that a row accepts; what is not mentioned is not limited.
struct Limits {
  Range tokens{}, sequences{}, heads{}, columns{}, busy_columns{}, pairs{}, dk{}, dv{}, chunk{};
  std::int64_t dk_multiple = 1;
  std::int64_t dv_multiple = 1;
  bool packed = true;  ///< accepts cu_seqlens
  enum class Rule { any, delta, decay } rule = Rule::any;

  [[nodiscard]] constexpr bool hold(const CallShape& s) const {
    return tokens.holds(s.tokens) && sequences.holds(s.sequences) && heads.holds(s.value_heads) &&
           columns.holds(s.columns()) && busy_columns.holds(s.busy_columns()) && pairs.holds(s.pairs()) &&
           dk.holds(s.dk) && dv.holds(s.dv) && chunk.holds(s.chunk) && s.dk % dk_multiple == 0 &&
           s.dv % dv_multiple == 0 && (packed || !s.packed) &&
           (rule == Rule::any || (rule == Rule::delta) == s.delta);
  }
};

/// For example `columns <= 8192, dv % 4 = 0`; `any shape` if nothing is limited.
[[nodiscard]] inline std::string text(const Limits& limits) {
  std::string out;
  const auto add = [&](const std::string& one) { out += (out.empty() ? "" : ", ") + one; };
  const auto range = [&](const std::string& name, const Range& r) {
    const bool below = r.most != Range::kAny;
    if (r.least > 0 && r.least == r.most) return add(name + " = " + std::to_string(r.least));
    if (r.least > 0 && below)
      return add(name + " " + std::to_string(r.least) + " .. " + std::to_string(r.most));
    if (r.least > 0) return add(name + " >= " + std::to_string(r.least));
    if (below) add(name + " <= " + std::to_string(r.most));
  };
  const auto multiple = [&](const std::string& name, std::int64_t n) {
    if (n > 1) add(name + " % " + std::to_string(n) + " = 0");
  };
  range("tokens", limits.tokens);
  range("sequences", limits.sequences);
  range("heads", limits.heads);
  range("columns", limits.columns);
  range("columns at work", limits.busy_columns);
  range("pairs", limits.pairs);
  range("dk", limits.dk);
  multiple("dk", limits.dk_multiple);
  range("dv", limits.dv);
  multiple("dv", limits.dv_multiple);
  range("chunk", limits.chunk);
  if (!limits.packed) add("not packed");
  if (limits.rule != Limits::Rule::any)
    add(limits.rule == Limits::Rule::delta ? "delta rule" : "no delta rule");
  return out.empty() ? "any shape" : out;
}

/// One kernel and the calls for which it is chosen.
struct DispatchRow {
  std::string_view kernel;         ///< unique in its table, for example decode 16 x 4
  std::string_view contracts;      ///< names of the contracts that it keeps, separated by blanks
  bool (*keeps)(const Contract&);  ///< decides from a contract's fields; the names above must agree
  Limits limits;
  std::string_view why;  ///< why it is chosen here: a measurement, or its purpose

  [[nodiscard]] bool takes(const CallShape& shape, const Contract& contract) const {
    return keeps(contract) && limits.hold(shape);
  }
};

/// Index of the first row that takes the call; rows.size() if none does.
[[nodiscard]] inline std::size_t choose(std::span<const DispatchRow> rows, const CallShape& shape,
                                        const Contract& contract) {
  std::size_t i = 0;
  while (i < rows.size() && !rows[i].takes(shape, contract)) ++i;
  return i;
}

/// Index of the row of that name; rows.size() if there is none.
[[nodiscard]] inline std::size_t row_named(std::span<const DispatchRow> rows, std::string_view kernel) {
  std::size_t i = 0;
  while (i < rows.size() && rows[i].kernel != kernel) ++i;
  return i;
}

/// Names of the contracts that some row keeps, each listed once.
[[nodiscard]] inline std::vector<std::string> contracts_of(std::span<const DispatchRow> rows) {
  std::vector<std::string> names;
  for (const DispatchRow& row : rows) {
    std::istringstream words{std::string(row.contracts)};
    for (std::string name; words >> name;)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

[[nodiscard]] inline std::string kept(std::span<const DispatchRow> rows) {
  std::string text;
  for (const std::string& name : contracts_of(rows)) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The rows as `samestate list kernels --long` shows them.
[[nodiscard]] inline std::vector<Variant> variants(std::span<const DispatchRow> rows) {
  std::vector<Variant> out;
  for (const DispatchRow& row : rows) {
    out.push_back(
        {std::string(row.kernel), std::string(row.contracts), text(row.limits), std::string(row.why)});
  }
  return out;
}

}  // namespace samestate::cuda
