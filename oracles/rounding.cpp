#include "oracles/rounding.h"

namespace samestate {

double detail::round_subnormal(double x, Format format) {
  const FormatLayout layout = layout_of(format);
  const double spacing = power(layout.lowest - (layout.precision - 1));
  const double scaled =
      x / spacing;  // exact: a power of two, and doubles below 2^-1022 round to zero either way
  const double kept = truncates(format) ? std::trunc(scaled) : std::nearbyint(scaled);
  return std::copysign(kept * spacing, x);
}

float round_to(float x, Format format) {
  if (format == Format::fp32) return x;
  return static_cast<float>(round_to(static_cast<double>(x), format));
}

}  // namespace samestate
