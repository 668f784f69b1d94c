#pragma once

#include <limits>
#include <string>
#include <vector>

#include "reports/plots/plots_sweep.h"
#include "tests/reports/records.h"

namespace samestate::testing {

/// A point of a sweep over chunks, with every figure set.
inline SweepPoint point(const std::string& contract, double x, double rms,
                        const std::string& series = "chunk") {
  Measurement m;
  m.series = series;
  m.curve = "gated_delta_rule " + contract + " slow";
  m.x = x;
  m.record =
      record(Verdict::pass, 0.25, "v1 gated_delta_rule chunk=" + std::to_string(x) + " contract=" + contract);
  m.record.contract = contract;
  m.tokens = 128;
  m.size = 0.05;
  m.max_error = rms * 10;
  m.rms_error = rms;
  m.rms_bound = rms * 4;
  m.state_size = 0.5;
  m.state_max = rms * 20;
  m.state_rms = rms * 2;
  m.state_bound = rms * 8;
  m.flops = 1000 + x;
  m.bytes = 1000 / x;
  m.condition = 1.5 + x;
  m.by_token = {{0, rms, rms * 3}, {1, rms, rms * 3}};
  m.by_chunk_position = {{0, rms, rms * 3}};
  m.by_head = {{0, rms, rms * 3}, {1, rms * 2, std::numeric_limits<double>::infinity()}};
  return {m, 0};
}

}  // namespace samestate::testing
