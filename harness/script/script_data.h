#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/system_rows.h"

/// Arrays as Python text, for scripts that carry their data.
namespace samestate {

/// A row of the script's DATA: `    "q": array("bf16", (1, 65, 2, 16), """..."""),`, with little-endian
/// base64 in the narrowest format that holds every value exactly (bf16, fp16, fp32), or one number that fills
/// the array.
[[nodiscard]] std::string python_array(const std::string& name, std::span<const std::int64_t> shape,
                                       std::span<const float> values);

/// The same in fp64 if fp32 would round a value.
[[nodiscard]] std::string python_array(const std::string& name, std::span<const std::int64_t> shape,
                                       std::span<const double> values);

/// The smallest fp32 number that is not below x >= 0, so that writing a limit down never narrows it. Infinity
/// is unchanged.
[[nodiscard]] float rounded_up(double x);

/// "(1, 65, 2)", "(4,)" and "()".
[[nodiscard]] std::string python_tuple(std::span<const std::int64_t> values);

/// A Python string literal of any text.
[[nodiscard]] std::string python_string(std::string_view text);

/// `text` with each @NAME@ in `values` replaced.
[[nodiscard]] std::string filled_in(std::string text,
                                    const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace samestate
