#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "harness/card/read_card.h"
#include "optimized/cpu/twin.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"

/// Kernels whose card is known.
namespace samestate::testing {

/// A kernel that is the twin of `card`, whatever it is called with; it declares `declared`.
inline KernelTable known_table(const Contract& card, const std::string& declared,
                               const std::string& system = "gated_delta_rule",
                               const std::string& form = "chunked", bool own_sums = false) {
  KernelTable table(kernels());
  const Kernel base = table.named("cpu." + system + "." + form);
  Kernel row;
  row.name = "known." + system + "." + form;
  row.system = system;
  row.form = form;
  row.device = "cpu";
  row.contracts = {declared};
  row.run = [card, system, form, own_sums, base](const Arguments& a, const Contract&) {
    Contract c = a.l2norm ? with_l2norm(card) : card;
    if (own_sums) return base.run(a, c);
    return run_twin(system, form, a, form == "recurrent" ? recurrent_contract(c) : c);
  };
  table.add(std::span(&row, 1));
  return table;
}

struct Score {
  int points = 0, wrong = 0;
  std::string text;
};

/// Points of the true card that are neither found nor among those that no output tells apart.
inline Score score_of(const CardRow& row, const Contract& truth) {
  Score score;
  for (const CardPoint& p : row.points) {
    const std::string value = contract_point(p.name).value(truth);
    ++score.points;
    const bool like =
        std::any_of(p.like.begin(), p.like.end(), [&](const CardValue& v) { return v.value == value; });
    if (p.value == value || like) continue;
    ++score.wrong;
    score.text += fmt::format(" {}: {} for {}", p.name, p.value, value);
  }
  return score;
}

}  // namespace samestate::testing
