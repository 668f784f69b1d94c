#include "optimized/ranks.h"

#include <algorithm>
#include <string>

#include "reference/error.h"

namespace samestate::calls {

std::vector<std::int64_t> checked_cuts(const Arguments& arguments, const Sizes& sizes) {
  const View<const std::int64_t, 1>& cuts = arguments.cuts;
  if (!cuts.present()) return {0, sizes.tokens};
  const std::int64_t count = cuts.shape[0];
  if (count < 2)
    throw Error("cuts holds " + std::to_string(count) +
                " elements; it needs the first and the last token of at least one rank");
  std::vector<std::int64_t> out;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t least = r == 0 ? 0 : out.back();
    const std::int64_t cut = cuts(r);
    const std::int64_t exactly = r == 0 ? 0 : r + 1 == count ? sizes.tokens : cut;
    if (cut < least || cut > sizes.tokens || cut != exactly)
      throw Error("cuts[" + std::to_string(r) + "] is " + std::to_string(cut) +
                  "; cuts must ascend from 0 to T = " + std::to_string(sizes.tokens));
    out.push_back(cut);
  }
  return out;
}

std::vector<Part> parts_of(const Arguments& arguments, const Sizes& sizes,
                           const std::vector<std::int64_t>& cuts, std::int64_t sequence) {
  const bool packed = arguments.cu_seqlens.present();
  const std::int64_t first = packed ? arguments.cu_seqlens(sequence) : 0;
  const std::int64_t last = packed ? arguments.cu_seqlens(sequence + 1) : sizes.tokens;
  std::vector<Part> parts;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const std::int64_t begin = std::max(cuts[r], first);
    const std::int64_t end = std::min(cuts[r + 1], last);
    if (begin < end)
      parts.push_back({static_cast<std::int64_t>(r), sequence, begin - first, end - first, end < last});
  }
  if (parts.empty()) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end() - 1, first);
    parts.push_back({after - cuts.begin() - 1, sequence, 0, 0, false});
  }
  return parts;
}

Head tokens_of(Head head, std::int64_t begin, std::int64_t end) {
  head.tokens = end - begin;
  for (Rows<const float>* x : {&head.q, &head.k, &head.v, &head.g, &head.beta}) {
    if (x->data != nullptr) x->data += begin * x->row_stride;
  }
  if (head.o.data != nullptr) head.o.data += begin * head.o.row_stride;
  return head;
}

}  // namespace samestate::calls
