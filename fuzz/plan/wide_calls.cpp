#include "fuzz/plan/wide_calls.h"

#include <algorithm>
#include <utility>

#include "fuzz/plan/draw.h"
#include "fuzz/plan/factors.h"
#include "harness/cases/keys.h"

namespace samestate {

Case few_of_each_size(const KernelRow& kernel, const Case& start, Case c, Index most) {
  const std::vector<CaseSize>& sizes = kernel.system->sizes;
  for (const CaseSize& size : sizes)
    size_in(c, size.name) = std::max(size.least, std::min<Index>(size.start, most));
  for (const CaseSize& size : sizes) {
    if (!size.multiple_of.empty()) size_in(c, size.name) = size_in(c, size.multiple_of);
  }
  if (!possible(c)) {
    for (const CaseSize& size : sizes) size_in(c, size.name) = size_in(start, size.name);
  }
  return kernel.limits.nearest(std::move(c));
}

std::vector<Case> wide_calls(const KernelRow& kernel, const Case& start, double most) {
  struct Wide {
    Index width, tokens, chunk;
  };
  std::vector<Case> out;
  const System& system = *kernel.system;
  const bool chunked = system.form(kernel.form)->chunked;
  for (const CaseSize& size : system.sizes) {
    if (size.most < 256) continue;
    for (const Wide& wide :
         {Wide{64, 1026, 64}, Wide{128, 260, 256}, Wide{256, 130, 128}, Wide{256, 70, 64}}) {
      for (const auto& [batch, few] : {std::pair<Index, Index>{2, 2}, {1, 2}, {1, 1}}) {
        Case c = few_of_each_size(kernel, start, start, few);
        size_in(c, size.name) = wide.width;
        for (const CaseSize& other : system.sizes) {
          if (other.multiple_of == size.name) size_in(c, other.name) = wide.width;
        }
        if (chunked) c.chunk = wide.chunk;
        c.T = wide.tokens, c.B = batch;
        if (!possible(c) || !within_limits(kernel, c) || work_of(kernel, c) > most) continue;
        out.push_back(c);
        break;
      }
    }
  }
  return out;
}

}  // namespace samestate
