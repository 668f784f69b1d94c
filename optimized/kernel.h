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
/// finite, <= 0. e^-128 is no fp32 number but 0: for a g below -128, a reset, a kernel may take any value from -128 down
/// to it, and one that sums g takes none below -1024, since what is added to a larger sum in fp32 is lost. Sums of g are in any order: that of a whole chunk, in the decay to its end, may be another sum than the scan's last.
///
/// A kernel may rely on: stride 1 in the last dimension of q, k, v, o and the states, whatever its extent;
/// positive strides; no two elements of an output in one place; cu_seqlens contiguous and ascending within
/// [0, T]; inputs that nothing writes during the call.
/// It may not rely on: other strides, which every tensor has for itself (views of one fused projection, memory
/// [B, H, T, D], rows of a pool of states; those of g and beta are any), data aligned to more than a float,
/// offsets or sizes that fit 32 bits, cu_seqlens that begins at 0 or ends at T. Tokens that belong to no
/// sequence may hold anything, NaN too, and their rows of o are not written: they may be another call's.
/// The same call gives the same bits, whatever was called before it, on whatever memory.
namespace samestate {

/// The tensors and settings of one call. All values travel in fp32; a contract with bf16, fp16 or tf32 inputs
/// finds them already representable there. N is the number of sequences: B, or cu_seqlens.shape[0] - 1 when
/// packed.
struct Arguments {
  View<const float, 4> q;              ///< [B, T, Hk, dk]
  View<const float, 4> k;              ///< [B, T, Hk, dk]
  View<const float, 4> v;              ///< [B, T, Hv, dv]
  View<const float, 3> g;              ///< [B, T, Hv]; absent: no decay
  View<const float, 3> beta;           ///< [B, T, Hv]; absent: 1
  View<const float, 4> initial_state;  ///< [N, Hv, dk, dv]; absent: 0
  View<const std::int64_t, 1>
      cu_seqlens;    ///< [N + 1], packed: B = 1, sequence n holds tokens [c[n], c[n+1]); absent: dense
  View<float, 4> o;  ///< [B, T, Hv, dv]; all rows of tokens of sequences are written, and no others
  View<float, 4> final_state;  ///< [N, Hv, dk, dv], every element is written; absent: not wanted.
                               ///< May be the same memory as initial_state (decoding in place)
  float scale = 1.0F;          ///< multiplies the output; any finite number
  /// Tokens a chunk (chunked form), the last of a sequence may have fewer; 0 in the recurrent form. The partition is
  /// part of what is asked for: each has errors of its own, and its bound. A kernel that knows only some declares
  /// them (Kernel::limits, "chunk in 64"); one that goes token by token is of the recurrent form.
  std::int64_t chunk = 0;
  HeadMap head_map = HeadMap::interleaved;
  bool l2norm = false;  ///< q and k are normalised first: x (sum x^2 + 1e-6)^-1/2
  int threads = 1;      ///< at most this many CPU threads
  /// [ranks + 1], ascending. In sequence_parallel from 0 to T: rank r holds the tokens [c[r], c[r+1]) of every row of the
  /// batch, none where the two are equal. It evaluates them in chunks from its own first token, or from a sequence's; what
  /// a sequence hands to it comes from the ranks before (BOUNDS 5.3). In head_parallel from 0 to Hv: rank r holds those value
  /// heads, and the key heads that serve them. Absent: one rank holds all, or the form has none.
  View<const std::int64_t, 1> cuts = {};

  [[nodiscard]] std::int64_t sequences() const {
    return cu_seqlens.present() ? cu_seqlens.shape[0] - 1 : q.shape[0];
  }
};

/// What a kernel says of a call: it ran; it does not do this shape or setting (`reason` says which limit, which its
/// row declares: a refusal inside Kernel::limits is a failure); or it cannot run on this machine (no device).
struct Outcome {
  enum class Kind { ran, unsupported, no_device } kind = Kind::ran;
  std::string reason;
};

/// What `Kernel::time` is asked for.
struct TimingRequest {
  double seconds = 0.5;         ///< stop once so much time lies in timed calls ..
  int least_samples = 5;        ///< .. but not with fewer samples than this
  int most_samples = 1000;      ///< .. nor with more
  int warm_up = 3;              ///< calls before the first sample
  std::int64_t most_bytes = 0;  ///< of device memory for all copies of the tensors; 0: what is free
  std::string variant = {};     ///< of Kernel::variants, by name; empty: the one that `run` would choose
};

/// What `Kernel::time` measured.
struct Timing {
  Outcome outcome;
  std::string how;              ///< events (one call between two device events), graph (replayed), ..
  std::vector<double> seconds;  ///< of one call, a sample each
  int calls_per_sample = 1;     ///< a sample is the mean of so many calls
  int copies = 1;               ///< sets of tensors that the calls take in turn, so that a cache holds none
  std::string variant = {};     ///< what was timed, where the kernel has variants
  /// Of the device while its timed calls ran; NaN: not known.
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< of its multiprocessors, Hz
  double power = std::numeric_limits<double>::quiet_NaN();  ///< W
  std::string slowed = {};  ///< what held the clock back: "power", "heat", ..; empty: nothing, or not known
};

/// What `Kernel::trace` is asked for.
struct TraceRequest {
  std::int64_t block = -1;   ///< of the grid; -1: one that does what is typical
  std::string variant = {};  ///< as TimingRequest's
};

/// A wait of one warp; between its waits it works.
struct KernelWait {
  int warp = 0;
  std::string what;               ///< it waited for, as in "K full" or "products"
  double begin = 0.0, end = 0.0;  ///< seconds from the block's beginning
};

/// One block of a call, warp by warp.
struct KernelTrace {
  Outcome outcome;
  std::string variant = {};                                 ///< what ran, where the kernel has variants
  std::int64_t block = 0, blocks = 0;                       ///< which, of how many
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< of its multiprocessor meanwhile, Hz
  std::vector<std::string> roles = {};                      ///< a warp each
  std::vector<double> ends = {};       ///< of the warps, seconds from the block's beginning
  std::vector<KernelWait> waits = {};  ///< by warp and time
  bool complete = true;                ///< no more waits than were kept
};

/// One of several functions among which a kernel chooses by contract and shape: the first that takes a call.
struct Variant {
  std::string name;
  std::string contracts;  ///< that it keeps, one space between
  std::string limits;     ///< shapes that it takes, as in tokens <= 4, dv % 4 = 0
  std::string why;        ///< it is the choice there
};

/// Among the contracts of a row: it reads every field of the contract that it is called with, so that it keeps any.
inline constexpr std::string_view kAnyContract = "any";

/// One row of the table of kernels.
struct Kernel {
  std::string name;    ///< device.system.form, as in cpu.gated_delta_rule.chunked
  std::string system;  ///< gated_delta_rule, delta_rule, retention, linear_attention
  /// recurrent, chunked, sequence_parallel or head_parallel; decode, split and packed runs are calls of these.
  std::string form;
  std::string device;  ///< cpu or cuda
  /// What it promises: names of contracts, or a name and changes (`bf16+beta_k:bf16+inverse:block16/tf32_truncated`;
  /// `samestate list contracts --long`). With the change `card:nearest` the distance to the twin is reported and does not
  /// gate. kAnyContract beside others: every contract of that grammar.
  std::vector<std::string> contracts;
  /// Evaluates one call; called from several threads at a time.
  std::function<Outcome(const Arguments&, const Contract&)> run = nullptr;
  /// Evaluates the same call many times and says how long each took, without the way of the tensors to the
  /// device and back. `o` and `final_state` are dense, receive what the last timed call wrote into memory
  /// that was poisoned before it, and share none with the inputs. Empty: `samestate bench` times `run` by the
  /// wall clock and says so.
  std::function<Timing(const Arguments&, const Contract&, const TimingRequest&)> time = nullptr;
  std::vector<Variant> variants = {};  ///< in order of choice; empty: `run` is one function
  /// The calls that it takes: conditions on keys of the case line that all hold, as in {"dk <= 256", "dv % 8 = 0",
  /// "chunk in 16 32 64", "dk <= 128 if contract = bf16"} (harness/cases/declared_limits.h). Empty: every call.
  std::vector<std::string> limits = {};
  /// Evaluates the call once and notes what the warps of one block waited for, for `samestate bench --trace`. Empty: nothing
  /// is known of them.
  std::function<KernelTrace(const Arguments&, const Contract&, const TraceRequest&)> trace = nullptr;
};

/// The table of this build: the project's kernels on the CPU and, where it was built with CUDA, on the GPU.
[[nodiscard]] std::span<const Kernel> kernels();

}  // namespace samestate
