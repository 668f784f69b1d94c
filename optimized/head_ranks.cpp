#include "optimized/head_ranks.h"

#include <iterator>
#include <string>
#include <utility>

#include "reference/error.h"

namespace samestate::calls {

std::vector<std::int64_t> checked_head_cuts(const Arguments& arguments, const Sizes& sizes) {
  const View<const std::int64_t, 1>& cuts = arguments.cuts;
  if (!cuts.present()) return {0, sizes.value_heads};
  const std::int64_t count = cuts.shape[0];
  if (count < 2)
    throw Error("cuts holds " + std::to_string(count) +
                " elements; it needs the first and the last value head of at least one rank");
  std::vector<std::int64_t> out;
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t least = r == 0 ? 0 : out.back();
    const std::int64_t cut = cuts(r);
    const std::int64_t exactly = r == 0 ? 0 : r + 1 == count ? sizes.value_heads : cut;
    if (cut < least || cut > sizes.value_heads || cut != exactly)
      throw Error("cuts[" + std::to_string(r) + "] is " + std::to_string(cut) +
                  "; cuts of heads must ascend from 0 to Hv = " + std::to_string(sizes.value_heads));
    out.push_back(cut);
  }
  return out;
}

std::vector<HeadPart> head_parts_of(const Arguments& arguments, const Sizes& sizes,
                                    const std::vector<std::int64_t>& cuts) {
  const std::int64_t group = sizes.value_heads / sizes.key_heads;
  std::vector<HeadPart> parts;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    if (cuts[r] == cuts[r + 1]) continue;
    HeadPart part{static_cast<std::int64_t>(r), cuts[r], cuts[r + 1], {}, {}};
    std::vector<std::int64_t> places(static_cast<std::size_t>(sizes.key_heads), -1);
    for (std::int64_t h = part.begin; h < part.end; ++h) {
      const std::int64_t key = arguments.head_map == HeadMap::interleaved ? h / group : h % sizes.key_heads;
      std::int64_t& place = places[static_cast<std::size_t>(key)];
      if (place < 0) {
        place = std::ssize(part.keys);
        part.keys.push_back(key);
      }
      part.key_of.push_back(place);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace samestate::calls
