#include "harness/card/card_cases.h"

#include <fmt/format.h>

#include <utility>

#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
#include "oracles/systems/family.h"

namespace samestate {

std::vector<std::string_view> card_regimes(const KernelRow& kernel) {
  std::vector<std::string_view> out;
  for (const std::string_view name :
       {"normal", "slow", "collinear", "beta_two", "pool4", "unnormalised15", "reset"}) {
    if (kernel.system->regime(name) != nullptr) out.push_back(name);
  }
  return out;
}

CardCase judged_under(const KernelTable& table, const KernelRow& kernel, const std::string& declared,
                      const std::string& card, std::string_view regime) {
  Case c = kernel.system->standard();
  c.form = kernel.form;
  c.contract = declared;
  c.kernel = kernel.name;
  c.T = 192;
  c.state = "random";
  c.regime = regime;
  c = kernel.limits.nearest(std::move(c));
  const Resolved called(c);
  const KernelChoice kernels = table.choose(called);
  c.contract = card;
  const Resolved judged(c);
  const Family& family = family_named(kernel.system->name);
  // The batch is rounded as the kernel loads it if the card says that the kernel rounds its inputs.
  Batch batch = batch_of(judged.contract->input == called.contract->input ? called : judged, family);
  if (kernel.given) batch.shape.given = kernel.given(called.promised);
  RunOptions inside;
  inside.of = &called.c;
  const Runner runner = [&](const Batch& of, const Path& path) {
    return run_kernel(kernels, of, path, called.promised, inside);
  };
  CardCase row{format_case(judged.c), ""};
  try {
    const Judgement j = judge_batch(judged, family, batch, runner(batch, called.path(batch.shape.T)),
                                    kGatePolicy, runner, takes_pieces(kernels, called));
    row.verdict = name_of(j.verdict);
    row.twin = j.twin_ratio;
    row.ratio = j.ratio;
    row.gate = j.gate;
  } catch (const Unavailable& unavailable) {
    row.verdict = fmt::format("unsupported: {}", unavailable.what());
  }
  return row;
}

}  // namespace samestate
