#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/bounds/skipped_points.h"
#include "reference/contract.h"

/// The rounding points of all references by name (reference/point.h), and the contracts that switch them:
/// under `bf16+softmax_attention.weights:fp32` a kernel keeps the weights of a softmax in fp32, and bounds,
/// samples and twin have no rounding there. The switched points are recorded in the contract's own name; no
/// kernel in this repository reads them.
namespace samestate {

/// Every table, in search order.
[[nodiscard]] std::span<const PointTable* const> point_tables();

/// Every point of every table, in that order.
[[nodiscard]] const std::vector<Point>& named_points();

/// The point of that full name; empty if there is none.
[[nodiscard]] std::optional<Point> point_named(std::string_view name);

/// The format to which the contract rounds at a point of that use: where results are stored, that of its
/// inputs if it has 16 bits; where products are made, that of the operands of a tf32 unit; none if it rounds
/// nothing.
[[nodiscard]] Format format_at(const Contract& contract, PointUse use);

/// Full names of the points that a contract's text switches, in the order of the text.
[[nodiscard]] std::vector<std::string_view> switched_points(std::string_view contract);

/// The points that a contract's text switches, including those that are the same point in another order of
/// evaluation or in a stage: it rounds nothing there although its formats would, or rounds where kernels keep
/// fp32 (PointRow::only_if_named). Null if there are none. The set lives as long as the process. Throws Error
/// if the contract's name contains an unknown point.
[[nodiscard]] const SkippedPoints* switched_by(const Contract& contract);

/// The value of a point in a contract that switches it, as the contract's text has it.
[[nodiscard]] std::string_view switched_value(const Contract& contract, Point point);

/// Full names of the points that a text may have meant: those with that name in any table, or else those that
/// are near by edit distance or contain it.
[[nodiscard]] std::vector<std::string> nearest_points(std::string_view text);

/// The point of that name. Throws Error that names the nearest points, and where to find all, if there is
/// none.
[[nodiscard]] Point require_point(std::string_view name);

/// Reads `text` as the value of a point in a contract: true if it switches the point, false if it is what the
/// contract has there anyway. A point takes fp32 and the format to which the contract rounds. Throws Error that says what is allowed for any
/// other text, and if the contract rounds nothing there.
[[nodiscard]] bool switches(const Contract& contract, Point point, std::string_view text);

}  // namespace samestate
