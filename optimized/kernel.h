#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract.h"
#include "reference/view.h"

/// The interface of code under test: one call evaluates one (system, form) on a batch of sequences.
/// Layout [B, T, H, D]; state [N, Hv, dk, dv] (row convention: o = S^T q); g is the natural log of the decay,
/// finite and <= 0. In fp32 e^-128 is 0: for a g below -128, a reset, a kernel may use any value between -128
/// and g, and a kernel that sums g must use none below -1024, since smaller terms are lost when they are
/// added to a larger sum in fp32. Sums of g may be taken in any order; the sum of a whole chunk, in the decay
/// to its end, need not be the last one of the scan.
///
/// A kernel may rely on: stride 1 in the last dimension of q, k, v, o and the states, whatever its extent;
/// positive strides; no two elements of an output in one place; cu_seqlens contiguous and ascending within
/// [0, T]; inputs that nothing writes during the call.
/// It may not rely on: any other strides, which each tensor has independently (views of one fused projection,
/// memory in [B, H, T, D] order, rows of a pool of states; g and beta may have any strides); data aligned to
/// more than a float; offsets or sizes that fit 32 bits; cu_seqlens that start at 0 or end at T. Tokens that
/// belong to no sequence may hold anything, including NaN, and their rows of o must not be written, because
/// they may belong to another call. The same call must give the same bits, whatever was called before it and
/// whatever memory it uses.
namespace samestate {

/// The tensors and settings of one call. All values are passed in fp32; under a contract with bf16, fp16 or
/// tf32 inputs they are already representable in that format. N is the number of sequences: B, or
/// cu_seqlens.shape[0] - 1 if packed.
struct Arguments {
  View<const float, 4> q;              ///< [B, T, Hk, dk]
  View<const float, 4> k;              ///< [B, T, Hk, dk]
  View<const float, 4> v;              ///< [B, T, Hv, dv]
  View<const float, 3> g;              ///< [B, T, Hv]; if absent, no decay
  View<const float, 3> beta;           ///< [B, T, Hv]; if absent, 1
  View<const float, 4> initial_state;  ///< [N, Hv, dk, dv]; if absent, 0
  View<const std::int64_t, 1>
      cu_seqlens;  ///< [N + 1] if packed: B = 1, and sequence n holds tokens [c[n], c[n+1]); absent if dense
  View<float, 4> o;            ///< [B, T, Hv, dv]; all rows of tokens of sequences are written, and no others
  View<float, 4> final_state;  ///< [N, Hv, dk, dv], every element is written; if absent, it is not wanted.
                               ///< May be the same memory as initial_state (decoding in place)
  float scale = 1.0F;          ///< multiplies the output; any finite number
  /// Tokens per chunk (chunked form), where the last chunk of a sequence may have fewer; 0 in the recurrent
  /// form. The partition is part of the request: each one has its own errors and its own bound. A kernel that
  /// supports only some chunks declares them (Kernel::limits, "chunk in 64"); a kernel that works token by
  /// token has the recurrent form.
  std::int64_t chunk = 0;
  HeadMap head_map = HeadMap::interleaved;
  bool l2norm = false;  ///< q and k are normalised first: x (sum x^2 + 1e-6)^-1/2
  int threads = 1;      ///< at most this many CPU threads
  /// [ranks + 1], ascending. In sequence_parallel from 0 to T: rank r holds the tokens [c[r], c[r+1]) of
  /// every row of the batch, none if the two are equal. It evaluates them in chunks that start at its own
  /// first token, or at that of a sequence; the state that a sequence brings to it comes from the ranks
  /// before (BOUNDS 5.3). In head_parallel from 0 to Hv: rank r holds those value heads and the key heads
  /// that serve them. If absent, one rank holds all, or the form has no ranks.
  View<const std::int64_t, 1> cuts = {};

  [[nodiscard]] std::int64_t sequences() const {
    return cu_seqlens.present() ? cu_seqlens.shape[0] - 1 : q.shape[0];
  }
};

/// The result of a call: it ran; the kernel does not support this shape or setting (`reason` names the limit,
/// which must be declared: refusing a call inside Kernel::limits is a failure); or it cannot run on this
/// machine (no device).
struct Outcome {
  enum class Kind { ran, unsupported, no_device } kind = Kind::ran;
  std::string reason;
};

/// The arguments of `Kernel::time`.
struct TimingRequest {
  double seconds = 0.5;         ///< stop once this much time has been spent in timed calls,
  int least_samples = 5;        ///< but not with fewer samples than this
  int most_samples = 1000;      ///< nor with more than this
  int warm_up = 3;              ///< calls before the first sample
  std::int64_t most_bytes = 0;  ///< device memory for all copies of the tensors; 0 means what is free
  std::string variant = {};     ///< one of Kernel::variants, by name; empty means the one that `run` would
                                ///< choose
};

/// The result of `Kernel::time`.
struct Timing {
  Outcome outcome;
  std::string how;              ///< "events" (one call between two device events), "graph" (replayed), ..
  std::vector<double> seconds;  ///< seconds per call, one for each sample
  int calls_per_sample = 1;     ///< a sample is the mean over this many calls
  int copies = 1;               ///< sets of tensors that the calls use in turn, so that no cache holds them
  std::string variant = {};     ///< the variant that was timed, if the kernel has variants
  /// State of the device while its timed calls ran; NaN if unknown.
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< multiprocessor clock, Hz
  double power = std::numeric_limits<double>::quiet_NaN();  ///< power, W
  std::string slowed = {};  ///< the throttling of the clock: "power", "heat", ..; empty if nothing did, or
                            ///< unknown
};

/// The arguments of `Kernel::trace`.
struct TraceRequest {
  std::int64_t block = -1;   ///< index of the block in the grid; -1 means one with a typical workload
  std::string variant = {};  ///< as TimingRequest::variant
};

/// One wait of one warp; between its waits it works.
struct KernelWait {
  int warp = 0;
  std::string what;               ///< what it waited for, for example "K full" or "products"
  double begin = 0.0, end = 0.0;  ///< seconds since the start of the block
};

/// The waits of one block of a call, by warp.
struct KernelTrace {
  Outcome outcome;
  std::string variant = {};            ///< the variant that ran, if the kernel has variants
  std::int64_t block = 0, blocks = 0;  ///< index of the block, and the number of blocks
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< clock of its multiprocessor meanwhile, Hz
  std::vector<std::string> roles = {};                      ///< one for each warp
  std::vector<double> ends = {};       ///< end of each warp, in seconds since the start of the block
  std::vector<KernelWait> waits = {};  ///< ordered by warp and time
  bool complete = true;                ///< all waits were recorded
};

/// One of several functions among which a kernel chooses by contract and shape: the first that accepts a
/// call.
struct Variant {
  std::string name;
  std::string contracts;  ///< contracts that it keeps, separated by blanks
  std::string limits;     ///< shapes that it accepts, for example tokens <= 4, dv % 4 = 0
  std::string why;        ///< why it is chosen there
};

/// Listed among the contracts of a row, it says that the kernel reads every field of the contract it is
/// called with, and so keeps any contract.
inline constexpr std::string_view kAnyContract = "any";

/// One row of the table of kernels.
struct Kernel {
  std::string name;    ///< device.system.form, for example cpu.gated_delta_rule.chunked
  std::string system;  ///< gated_delta_rule, delta_rule, retention, linear_attention
  /// recurrent, chunked, sequence_parallel or head_parallel; decode, split and packed runs are calls of
  /// these.
  std::string form;
  std::string device;  ///< cpu or cuda
  /// The contracts that it promises: names, or a name with changes
  /// (`bf16+beta_k:bf16+inverse:block16/tf32_truncated`; `samestate list contracts --long`). With the change
  /// `card:nearest` the distance to the twin is reported and does not gate. kAnyContract, listed with others,
  /// adds every contract of that grammar.
  std::vector<std::string> contracts;
  /// Evaluates one call. Must be safe to call from several threads at once.
  std::function<Outcome(const Arguments&, const Contract&)> run = nullptr;
  /// Evaluates the same call many times and reports how long each took, without copying the tensors to the
  /// device and back. `o` and `final_state` are dense, receive what the last timed call wrote into memory
  /// that was poisoned before it, and share no memory with the inputs. If empty, `samestate bench` measures
  /// `run` with the wall clock and says so.
  std::function<Timing(const Arguments&, const Contract&, const TimingRequest&)> time = nullptr;
  std::vector<Variant> variants = {};  ///< in order of preference; empty if `run` is one function
  /// The calls that it accepts: conditions on keys of the case line, all of which must hold, for example {"dk
  /// <= 256", "dv % 8 = 0", "chunk in 16 32 64", "dk <= 128 if contract = bf16"}
  /// (harness/cases/declared_limits.h). If empty, every call.
  std::vector<std::string> limits = {};
  /// Evaluates the call once and records what the warps of one block waited for, for `samestate bench
  /// --trace`. If empty, there are no traces.
  std::function<KernelTrace(const Arguments&, const Contract&, const TraceRequest&)> trace = nullptr;
};

/// The table of this build: the project's kernels on the CPU and, if it was built with CUDA, on the GPU.
[[nodiscard]] std::span<const Kernel> kernels();

}  // namespace samestate
