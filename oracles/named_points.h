#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/bounds/skipped_points.h"
#include "reference/contract.h"

/// The rounding points of all references by name (reference/point.h), and the contracts that switch them: in
/// `bf16+softmax_attention.weights:fp32` a kernel keeps the weights of a softmax in fp32, and bounds, samples and twin know no
/// rounding there. Which points are switched stands in the contract's own name: no kernel of this tree reads it.
namespace samestate {

/// Every table, in the order of a search.
[[nodiscard]] std::span<const PointTable* const> point_tables();

/// Every point of every table, in that order.
[[nodiscard]] const std::vector<Point>& named_points();

/// The point of that full name; empty where there is none.
[[nodiscard]] std::optional<Point> point_named(std::string_view name);

/// The format to which the contract rounds at a point of that use: where results are stored its input's, if that has 16 bit;
/// where products are made that of the operands of a tf32 unit; none where it rounds nothing.
[[nodiscard]] Format format_at(const Contract& contract, PointUse use);

/// Full names of the points that a contract's text switches, in its order.
[[nodiscard]] std::vector<std::string_view> switched_points(std::string_view contract);

/// The points at which a contract rounds nothing although its formats would, with all that are the same point in another order
/// of evaluation or in a stage. Null: none. The set lives as long as the process. Throws Error where the contract's name has an
/// unknown point.
[[nodiscard]] const SkippedPoints* unstored_points(const Contract& contract);

/// Full names of the points that a text may have meant: those of that name in any table, else those that are nearest by edits or
/// have it in them, the far ones left out.
[[nodiscard]] std::vector<std::string> nearest_points(std::string_view text);

/// Throws Error that names the nearest points and where to find all, unless there is a point of that name.
[[nodiscard]] Point require_point(std::string_view name);

/// `text` as the value of a point in a contract: true where it switches the point (fp32), false where it is the format that the
/// contract rounds to there. Throws Error with what it takes for another one, and where the contract rounds nothing there.
[[nodiscard]] bool switches(const Contract& contract, Point point, std::string_view text);

}  // namespace samestate
