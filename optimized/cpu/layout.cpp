#include "optimized/cpu/layout.h"

#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/rounding.h"

namespace samestate::cpu {

void load_key(const Rows<const float>& x, std::int64_t t, std::int64_t dk, bool l2norm, Format format,
              float* to) {
  x.load(t, 0, dk, to);
  if (l2norm) l2_normalise(to, dk);
  if (!keeps_fp32(format)) round_values(to, to, dk, format);
}

}  // namespace samestate::cpu
