#include "fuzz/shapes.h"

#include "oracles/contracts.h"

namespace samestate::shapes {

double tensor_work(const Case& c) {
  double elements = 0.0;
  for (const TensorSpec& spec : system_named(c.system).signature(c).inputs)
    elements += static_cast<double>(spec.size());
  return static_cast<double>(c.B) * static_cast<double>(std::max<std::int64_t>(c.T, 1)) * elements;
}

void as_law(Case& c, const Law& law, const std::string& plain) {
  if (law.needs.state) c.state = "random";
  c.law = law.name;
  c.B = 2;
  c.Hk = std::max<std::int64_t>(c.Hk, law.needs.heads ? 2 : 1);
  c.Hv = std::min<std::int64_t>(std::max(c.Hv, c.Hk), 2 * c.Hk) / c.Hk * c.Hk;
  c.dv = std::clamp<std::int64_t>(c.dv, 2, 64);
  c.T = std::clamp<std::int64_t>(c.T, 2, 48);
  c.dk = std::min<std::int64_t>(c.dk, 64);
  const Resolved r = [&] {
    Case without = c;
    without.law.clear();
    return Resolved(without);
  }();
  if (low_precision_state(*r.contract)) c.contract = plain;
  // What is exact needs no law, and where the state grows no bound says anything.
  if (r.regime->exact || r.regime->expands) c.regime = "normal";
}

}  // namespace samestate::shapes
