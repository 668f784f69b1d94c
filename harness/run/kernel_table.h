#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cases/declared_limits.h"
#include "harness/cases/declared_taps.h"
#include "harness/cases/resolved.h"
#include "harness/run/call_loop.h"
#include "harness/run/companion.h"
#include "optimized/call_kernel.h"
#include "oracles/given.h"

namespace samestate {

/// A row of the table of kernels (CallKernel) with its names looked up, in the form in which the harness
/// calls it.
struct KernelRow {
  std::string name = {};
  const System* system = nullptr;
  std::string form = {};
  std::string device = {};
  std::vector<std::string> contracts = {};
  bool strided = false;       ///< accepts tensors that are not dense
  bool any_contract = false;  ///< keeps every contract: its row lists `any`
  std::function<Outcome(const KernelCall&, const Contract&)> run = nullptr;
  /// Times the same call many times, with dense tensors: by the row's own function (Kernel::time), or by the
  /// clock.
  std::function<Timing(const KernelCall&, const Contract&, const TimingRequest&)> time = nullptr;
  std::vector<Variant> variants = {};  ///< Kernel::variants
  /// Kernel::trace; empty if the row has none.
  std::function<KernelTrace(const KernelCall&, const Contract&, const TraceRequest&)> trace = nullptr;
  DeclaredLimits limits = {};  ///< Kernel::limits
  std::string options = {};    ///< options of a command that the row needs: " --plugin mine.so"
  /// It must not be called outside its limits, because foreign programs do not check them.
  bool only_inside = false;
  std::vector<std::string> compiled_for =
      {};  ///< keys of a call for each of whose values it is compiled anew
  /// For a kernel with its own conventions: how it receives its inputs. If empty, unchanged.
  std::function<Given(const Contract&)> given = nullptr;
  std::vector<DeclaredTap> taps = {};  ///< OperatorKernel::taps
  Companion companion = {};            ///< for the recurrent family; without a name for others
  /// For named tensors: the formats of inputs that are not in the contract's format.
  std::map<std::string, Format, std::less<>> formats = {};
  bool only_asked =
      false;  ///< plans try it only where a filter asks for it (--where pass=backward, --system)
  bool interpreted = false;  ///< an interpreter runs it statement by statement, so plans give it small calls
  /// The same call gives the same bits. If false, as of a kernel that adds with atomics, two runs are only compared within
  /// their bounds, and a repeated call is judged as it comes.
  bool deterministic = true;
};

/// The properties of a call that limits depend on, without its data: a call refers to sizes and tensors by
/// views of what its run holds.
struct CallShape {
  explicit CallShape(const KernelCall& call);
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::optional<std::vector<std::int64_t>> lengths;  ///< tokens of each sequence in a packed batch
  std::int64_t batch, tokens, chunk, ranks;
  bool initial_state;
  HeadMap head_map;
  bool l2norm;
};

/// A kernel answered that it did not run the call.
class Refused : public Unavailable {
 public:
  Refused(const Outcome& outcome, const KernelRow& row, CallShape call)
      : Unavailable(outcome), kernel(&row), call(std::move(call)) {}
  const KernelRow* kernel;
  CallShape call;
};

/// An exception thrown by a kernel, so that exceptions of the judge are not blamed on the kernel.
class KernelThrew : public Error {
 public:
  using Error::Error;
};

/// Returns the result of the call. Throws KernelThrew for its exceptions, except for the verdicts
/// Unavailable, Trespass, Unrepeatable and ThrewElsewhere, which are raised on the way to a kernel in another
/// process.
template <class Call>
auto called(const Call& call) {
  try {
    return call();
  } catch (const Unavailable&) {
    throw;
  } catch (const Trespass&) {
    throw;
  } catch (const Unrepeatable&) {
    throw;
  } catch (const ThrewElsewhere&) {
    throw;
  } catch (const std::exception& thrown) {
    throw KernelThrew(std::string("the kernel threw: ") + thrown.what());
  } catch (...) {
    throw KernelThrew("the kernel threw something that is not a std::exception");
  }
}

/// Runs the kernel on the call, which belongs to the case `of` if that is known. Throws Refused if the kernel
/// says that it did not run, and if the call is outside the limits of a kernel that must only be called
/// inside them; KernelThrew if it throws.
void run_row(const KernelRow& kernel, const KernelCall& call, const Contract& contract,
             const Case* of = nullptr);

/// The case line that would describe one call of a run of `c`: its sizes, T and chunk, and its settings.
[[nodiscard]] Case as_called(Case c, const KernelRow& kernel, const CallShape& call);

/// True if every call of the case that this kernel makes is within the limits that its row declares, and
/// every other call has a kernel (has_kernels); false for an invalid case. Calls that a law adds, with other
/// chunks and cuts, are checked when they are made.
[[nodiscard]] bool within_limits(const KernelRow& kernel, const Case& c);

/// Returns those of `taps` that the kernel hands out in a case that asks for taps.
[[nodiscard]] std::vector<TensorSpec> handed_out(const KernelRow& kernel, std::vector<TensorSpec> taps,
                                                 const Resolved& r);

/// The row's contracts in canonical form, without the word `any`. Throws Error for an unknown contract, and
/// if there is none.
[[nodiscard]] std::vector<std::string> contracts_of(const std::string& kernel,
                                                    const std::vector<std::string>& declared);

/// A row of the table in the form in which the harness calls it. Throws Error for an unknown system,
/// contract, limit or tap.
[[nodiscard]] KernelRow adapted(const CallKernel& kernel);
template <class Row>
[[nodiscard]] KernelRow adapted(const Row& kernel) {
  return adapted(by_call(kernel));
}

/// The kernels that evaluate the calls of a case. If calls with and without chunks follow each other, two
/// kernels make them, whose names differ only in their last part, `chunked` and `recurrent`.
struct KernelChoice {
  const KernelRow* named = nullptr;      ///< the one that the case is about
  const KernelRow* chunked = nullptr;    ///< for calls with chunks; null if there is none
  const KernelRow* unchunked = nullptr;  ///< for the other calls
};

/// The kernels that a case can run on: the table of this build and, if given, rows of plugins.
class KernelTable {
 public:
  /// Throw Error for an unknown system or contract.
  explicit KernelTable(std::span<const CallKernel> rows);
  explicit KernelTable(std::span<const Kernel> rows, std::span<const OperatorKernel> operators = {});

  /// All kernels, in the order in which they were added.
  [[nodiscard]] const std::vector<KernelRow>& all() const { return all_; }
  /// The kernels that `add` appended.
  [[nodiscard]] std::span<const KernelRow> added() const { return std::span(all_).subspan(own_); }
  /// The kernels that were given as a Kernel.
  [[nodiscard]] std::span<const Kernel> rows() const { return rows_; }

  /// Appends rows. Throws Error if a name is taken or cannot be written in a case line, or if a row has no
  /// function, no known device or system, or no known contract.
  void add(std::span<const CallKernel> rows);
  void add(std::span<const Kernel> rows);
  void add(std::span<const OperatorKernel> rows);
  /// Makes rows that keep any contract promise this one too, so that cases of it are planned and run. Throws
  /// Error if it is unknown.
  void keep(std::string_view contract);
  /// Treats every card as exact: the twin gates every kernel (`--strict`).
  void hold_exact();

  /// For an added kernel that is a subject: it is called only inside its limits; says if it accepts strides,
  /// for which keys it is compiled anew, and how it receives its inputs. Throws Error for an unknown name or
  /// key.
  void converts(std::string_view name, bool strided, std::vector<std::string> compiled_for,
                std::function<Given(const Contract&)> given,
                std::map<std::string, Format, std::less<>> formats = {});
  /// Sets a property of an added kernel that its declaration states. Throws Error for an unknown name.
  void set(std::string_view name, bool KernelRow::*property, bool value);
  /// Sets the keys for which an added kernel is compiled anew. Throws Error as converts does.
  void compiled_for(std::string_view name, std::vector<std::string> keys);
  /// For all added rows: the options that a printed command needs besides the line (KernelRow::options).
  void added_by(const std::string& options);

  /// Return the row of that name; the first function looks among rows(). Throw Error that lists the nearest
  /// names.
  [[nodiscard]] const Kernel& named(std::string_view name) const;
  [[nodiscard]] const KernelRow& row_named(std::string_view name) const;

  /// The kernels of a case: the one that it names, or the first of its system and form (in all() the CPU's
  /// come first); if calls of two forms may follow each other, also the kernel of the other form with the
  /// same name, if it keeps the contract. Throws Error that lists the names.
  [[nodiscard]] KernelChoice choose(const Resolved& r) const;

  /// True if the case runs on this row without naming it, so that its line can leave the kernel out.
  [[nodiscard]] bool is_standard(const KernelRow& row, Case c) const;

 private:
  void check(const CallKernel& row) const;
  void append(const Kernel& row);
  [[nodiscard]] const KernelRow* find(std::string_view name) const;
  /// Updates which rows belong together after rows or their contracts changed.
  void pair_rows();

  std::vector<Kernel> rows_;
  std::vector<KernelRow> all_;
  std::size_t own_ = 0;  ///< number of rows that were there from the start
};

}  // namespace samestate
