#include "harness/script/script_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "oracles/rounding.h"

namespace samestate {
namespace {

constexpr std::size_t kColumns = 120;

/// Returns lines of base64 (RFC 4648).
std::string base64(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve(bytes.size() / 3 * 4 + bytes.size() / 90 + 8);
  std::size_t column = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j) group = group << 8U | (j < count ? bytes[i + j] : 0U);
    if (column == kColumns) out += '\n', column = 0;
    for (std::size_t j = 0; j < 4; ++j)
      out += j <= count ? kDigits[group >> (18U - 6U * static_cast<unsigned>(j)) & 63U] : '=';
    column += 4;
  }
  return out;
}

template <class Word>
void append(std::vector<unsigned char>& bytes, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i)
    bytes.push_back(static_cast<unsigned char>(word >> (8U * static_cast<unsigned>(i)) & 0xFFU));
}

template <class Real>
using BitsOf = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;

template <class Real>
bool same_bits(Real a, Real b) {
  return std::bit_cast<BitsOf<Real>>(a) == std::bit_cast<BitsOf<Real>>(b);
}

std::string row(const std::string& name, std::string_view kind, std::span<const std::int64_t> shape,
                const std::string& text) {
  return fmt::format("    {}: array(\"{}\", {}, {}),\n", python_string(name), kind, python_tuple(shape),
                     text);
}

/// Returns true if all values are equal, bit for bit. A NaN may have any bits and is written as data.
template <class Real>
bool all_alike(std::span<const Real> values) {
  return !values.empty() && !std::isnan(values.front()) &&
         std::ranges::all_of(values, [&](Real x) { return same_bits(x, values.front()); });
}

/// Writes inf and -0.0 so that Python's float() reads them.
template <class Real>
std::string number(Real x) {
  return fmt::format("\"{}\"", x);
}

/// Returns the bits of x in fp16, which holds it exactly.
std::uint16_t half_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | 0x7C00U);
  const int exponent = static_cast<int>(bits >> 23U & 0xFFU) - 127;
  const std::uint32_t fraction = bits & 0x7FFFFFU;
  if (exponent >= -14)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent + 15) << 10U |
                                      fraction >> 13U);
  // A subnormal is a multiple of 2^-24.
  return static_cast<std::uint16_t>(sign |
                                    static_cast<std::uint32_t>(std::lround(std::ldexp(std::fabs(x), 24))));
}

/// The bits of a NaN say nothing about the data, but a script's bits must be those of the run.
bool bf16_holds(float x) { return (std::bit_cast<std::uint32_t>(x) & 0xFFFFU) == 0; }
bool fp16_holds(float x) {
  return std::isinf(x) ||
         (std::isfinite(x) && round_to(static_cast<double>(x), Format::fp16) == static_cast<double>(x));
}

}  // namespace

std::string python_array(const std::string& name, std::span<const std::int64_t> shape,
                         std::span<const float> values) {
  if (all_alike(values)) return row(name, "fill", shape, number(values.front()));
  std::vector<unsigned char> bytes;
  std::string_view kind = "fp32";
  if (std::ranges::all_of(values, bf16_holds)) {
    kind = "bf16";
    for (const float x : values)
      append(bytes, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U));
  } else if (std::ranges::all_of(values, fp16_holds)) {
    kind = "fp16";
    for (const float x : values) append(bytes, half_bits(x));
  } else {
    for (const float x : values) append(bytes, std::bit_cast<std::uint32_t>(x));
  }
  return row(name, kind, shape, fmt::format("\"\"\"\n{}\"\"\"", base64(bytes)));
}

std::string python_array(const std::string& name, std::span<const std::int64_t> shape,
                         std::span<const double> values) {
  const bool narrow = std::ranges::all_of(
      values, [](double x) { return same_bits(static_cast<double>(static_cast<float>(x)), x); });
  if (narrow) return python_array(name, shape, std::vector<float>(values.begin(), values.end()));
  if (all_alike(values)) return row(name, "fill", shape, number(values.front()));
  std::vector<unsigned char> bytes;
  for (const double x : values) append(bytes, std::bit_cast<std::uint64_t>(x));
  return row(name, "fp64", shape, fmt::format("\"\"\"\n{}\"\"\"", base64(bytes)));
}

float rounded_up(double x) {
  const auto y = static_cast<float>(x);
  return static_cast<double>(y) < x ? std::nextafter(y, std::numeric_limits<float>::infinity()) : y;
}

std::string python_tuple(std::span<const std::int64_t> values) {
  return fmt::format("({}{})", fmt::join(values, ", "), values.size() == 1 ? "," : "");
}

std::string python_string(std::string_view text) {
  // JSON strings are valid Python strings too.
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::string filled_in(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "@" + name + "@";
    for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + value.size()))
      text.replace(at, mark.size(), value);
  }
  return text;
}

}  // namespace samestate
