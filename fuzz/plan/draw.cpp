#include "fuzz/plan/draw.h"

namespace samestate {
namespace {

constexpr int kAttempts = 60;
constexpr double kLeastWork = 3e-4;  // most draws are far below the most: rate finds more than size does

Case draw_once(Case c, const KernelRow& kernel, const std::vector<Factor>& factors, const Dice& dice,
               double most) {
  for (const Factor& factor : factors) {
    if (dice.one_in(factor.odds))
      factor.put(c, static_cast<int>(dice.below(std::ssize(factor.levels))), dice);
  }
  c.seed = 0;
  settle(c, kernel, dice);
  (void)afford(c, kernel, factors, std::vector<bool>(factors.size()), most, dice);
  return c;
}

}  // namespace

Case draw_case(const KernelRow& kernel, const std::vector<Factor>& factors, const Dice& dice, double most) {
  const double room = dice.between(kLeastWork * most, most);
  const Case start = start_of(kernel);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Half of the attempts stay within the room that was drawn; the rest only within what is affordable.
    const double limit = attempt < kAttempts / 2 ? room : most;
    Case c = draw_once(start, kernel, factors, dice, limit);
    if (work_of(kernel, c) <= limit && within_limits(kernel, c)) return c;
  }
  return start;
}

}  // namespace samestate
