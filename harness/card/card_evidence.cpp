#include "harness/card/card_evidence.h"

#include <algorithm>
#include <utility>

#include "oracles/limits.h"

namespace samestate {

CardPoint evidence_of(const ContractPoint& point, const Contract& card, CardDistance& distance) {
  CardPoint out;
  out.name = point.name;
  out.means = point.means;
  out.value = point.value(card);
  const CardDistance::Likeness like = distance.likeness(card);
  bool all_same = true;  // true while all listed contracts agree
  for (const std::string_view value : point.values) {
    Contract other = card;
    if (value == out.value || !changed(other, point.name, value)) continue;
    CardValue found{std::string(value), 0.0, ""};
    bool same_bits = true;
    for (std::size_t i = 0; i < distance.probes().size(); ++i) {
      if (!distance.ran(i)) continue;
      const OutputDistance with = distance.of(i, card);
      const OutputDistance without = distance.of(i, other);
      const OutputDistance level = distance.level(i, card, like);
      for (std::size_t t = 0; t < with.size(); ++t) {
        const double factor = std::max(without[t], level[t]) / std::max(with[t], level[t]);
        if (factor > found.factor) found.factor = factor, found.probe = distance.probes()[i].name;
        same_bits = same_bits && with[t] == without[t];
      }
    }
    if (found.factor < kCardAlike) {
      all_same = all_same && same_bits;
      out.like.push_back(std::move(found));
    } else if (out.without == 0.0 || found.factor < out.without) {
      out.without = found.factor;
      out.probe = found.probe;
    }
  }
  out.likely = out.without > 0.0 && out.without < kCardToldApart;
  out.told = out.like.empty() && out.without >= kCardToldApart;
  if (!out.like.empty())
    out.why =
        all_same ? "the same bits on every probe: it finds nothing to round, or another point rounds the same"
                 : "they move the distance by less than the order of sums does";
  else if (out.without == 0.0)
    out.why = "no other value is possible together with the other points";
  return out;
}

}  // namespace samestate
