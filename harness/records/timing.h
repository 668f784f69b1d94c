#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "harness/records/record.h"

/// How long one case took, against its floor and a peer, as plain data. Reports read it.
namespace samestate {

/// Of repeated calls, in seconds; NaN where nothing was timed.
struct TimeSpread {
  double median = std::numeric_limits<double>::quiet_NaN();
  double p10 = std::numeric_limits<double>::quiet_NaN();
  double p90 = std::numeric_limits<double>::quiet_NaN();
  std::int64_t samples = 0;
};

/// What a device reached in the same run as the timings.
struct DeviceRates {
  std::string device;  ///< its name
  double copy = 0.0;   ///< bytes a second, read and written; 0: not measured
  double bf16 = 0.0;   ///< operations a second of a large matrix product; 0: not measured
  double fp32 = 0.0;
  std::string note;         ///< how, and why one was not
  std::string number = {};  ///< of a GPU that was named: among those that the command sees
  std::string gpu = {};     ///< the same by Record::gpu
};

struct TimedCase {
  Record record;  ///< the case and its judgement; `seconds` is what data, timing and judging took together
  /// Of the case; chunk 0: none. Of a system of named tensors Hk, Hv, dk and dv are 0 and `sizes` says its
  /// own: "D=2048 H=16".
  std::int64_t B = 1, T = 0, Hk = 0, Hv = 0, dk = 0, dv = 0, chunk = 0;
  std::string sizes = {};
  std::int64_t ranks = 0;         ///< among which its tokens or value heads are divided; 0: its form has none
  std::string cuts = {};          ///< how (Case::cuts); empty of one rank
  std::int64_t heads = 0;         ///< parts that are judged apart: (sequence, value head) pairs, or sequences
  std::int64_t heads_judged = 0;  ///< of them, spread over all; in the others nothing may be NaN
  std::string timed;              ///< events, graph, or call: the wall clock around a whole call
  std::string variant = {};       ///< which of the kernel's variants ran, where it has some
  TimeSpread time;                ///< of one call; not set unless its outputs were judged and did not fail
  std::int64_t calls_per_sample = 1;
  std::int64_t copies = 1;                                  ///< sets of tensors that the calls took in turn
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< of the device meanwhile, Hz; NaN: not known
  double power = std::numeric_limits<double>::quiet_NaN();  ///< W
  std::string slowed = {};      ///< what held the clock back: "power", "heat"; empty: nothing, or not known
  std::int64_t bytes = 0;       ///< that every evaluation must move
  std::int64_t operations = 0;  ///< of this form; 0: not counted
  double copy_rate = 0.0;       ///< bytes a second that a copy reached in the same run; 0: not measured
  double product_rate = 0.0;    ///< operations a second that a matrix product reached; 0: not measured
  std::string ceilings;         ///< how the rates were measured, and why one was not
  double memory_floor = std::numeric_limits<double>::quiet_NaN();   ///< bytes / copy_rate, seconds
  double compute_floor = std::numeric_limits<double>::quiet_NaN();  ///< operations / product_rate, seconds
  double share =
      std::numeric_limits<double>::quiet_NaN();  ///< the larger floor over the median: 1 is perfect
  std::string peer;                              ///< what the peer ran; empty: no peer
  std::string peer_note;                         ///< what the peer says of it, or why there is none
  TimeSpread peer_time;
  double peer_ratio =
      std::numeric_limits<double>::quiet_NaN();  ///< the peer's median over ours: > 1 is faster
};

/// "ranks=7 cuts=drawn"; empty where the form has no ranks.
[[nodiscard]] inline std::string ranks_text(const TimedCase& t) {
  if (t.ranks == 0) return "";
  return "ranks=" + std::to_string(t.ranks) + (t.cuts.empty() ? "" : " cuts=" + t.cuts);
}

}  // namespace samestate
