#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "harness/records/record.h"

/// The time of one case, compared with its lower bound and with a peer, as plain data for reports.
namespace samestate {

/// Times of repeated calls in seconds; NaN if nothing was timed.
struct TimeSpread {
  double median = std::numeric_limits<double>::quiet_NaN();
  double p10 = std::numeric_limits<double>::quiet_NaN();
  double p90 = std::numeric_limits<double>::quiet_NaN();
  std::int64_t samples = 0;
};

/// The rates that a device reached in the same run as the timings.
struct DeviceRates {
  std::string device;  ///< its name
  double copy = 0.0;   ///< bytes per second, read and written; 0 if not measured
  double bf16 = 0.0;   ///< operations per second of a large matrix product; 0 if not measured
  double fp32 = 0.0;
  std::string note;         ///< how the rates were measured, and why one was not
  std::string number = {};  ///< for a GPU that was chosen by number: the number among those that the command
                            ///< sees
  std::string gpu = {};     ///< the same GPU, as Record::gpu
};

struct TimedCase {
  Record record;  ///< the case and its judgement; `seconds` is the total for data, timing and judging
  /// Sizes of the case; chunk 0 means none. For a system of named tensors Hk, Hv, dk and dv are 0, and
  /// `sizes` has its own: "D=2048 H=16".
  std::int64_t B = 1, T = 0, Hk = 0, Hv = 0, dk = 0, dv = 0, chunk = 0;
  std::string sizes = {};
  std::int64_t ranks = 0;  ///< ranks among which its tokens or value heads are divided; 0 if its form has
                           ///< none
  std::string cuts = {};   ///< how they are divided (Case::cuts); empty for one rank
  std::int64_t heads = 0;  ///< parts that are judged separately: (sequence, value head) pairs, or sequences
  std::int64_t heads_judged = 0;  ///< the number of those that were judged, spread over all; the others must
                                  ///< not contain NaN
  std::string timed;              ///< events, graph, or call: the wall clock around a whole call
  std::string variant = {};       ///< the variant of the kernel that ran, if it has variants
  TimeSpread time;                ///< for one call; only set if its outputs were judged and did not fail
  std::int64_t calls_per_sample = 1;
  std::int64_t copies = 1;                                  ///< sets of tensors that the calls used in turn
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< device clock during it, Hz; NaN if unknown
  double power = std::numeric_limits<double>::quiet_NaN();  ///< power, W
  std::string slowed = {};  ///< what throttled the clock: "power", "heat"; empty if nothing did, or unknown
  std::int64_t bytes = 0;   ///< bytes that every evaluation must move
  std::int64_t operations = 0;  ///< operations of this form; 0 if not counted
  double copy_rate = 0.0;       ///< bytes per second that a copy reached in the same run; 0 if not measured
  double product_rate = 0.0;    ///< operations per second that a matrix product reached; 0 if not measured
  std::string ceilings;         ///< how the rates were measured, and why one was not
  double memory_floor = std::numeric_limits<double>::quiet_NaN();   ///< bytes / copy_rate, seconds
  double compute_floor = std::numeric_limits<double>::quiet_NaN();  ///< operations / product_rate, seconds
  double share = std::numeric_limits<double>::quiet_NaN();  ///< larger lower bound / median: 1 is perfect
  std::string peer;                                         ///< what the peer ran; empty if there is no peer
  std::string peer_note;                                    ///< the peer's own note, or why there is none
  TimeSpread peer_time;
  double peer_ratio =
      std::numeric_limits<double>::quiet_NaN();  ///< peer's median / ours: > 1 if ours is faster
};

/// "ranks=7 cuts=drawn"; empty if the form has no ranks.
[[nodiscard]] inline std::string ranks_text(const TimedCase& t) {
  if (t.ranks == 0) return "";
  return "ranks=" + std::to_string(t.ranks) + (t.cuts.empty() ? "" : " cuts=" + t.cuts);
}

}  // namespace samestate
