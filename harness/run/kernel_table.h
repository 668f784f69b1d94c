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

/// A row of the table of kernels (CallKernel) with what it names looked up, as the harness calls it.
struct KernelRow {
  std::string name = {};
  const System* system = nullptr;
  std::string form = {};
  std::string device = {};
  std::vector<std::string> contracts = {};
  bool strided = false;       ///< takes tensors that are not dense
  bool any_contract = false;  ///< keeps every contract: `any` among those of its row
  std::function<Outcome(const KernelCall&, const Contract&)> run = nullptr;
  /// Many times the same call, of dense tensors: as the row times itself (Kernel::time), else by the clock.
  std::function<Timing(const KernelCall&, const Contract&, const TimingRequest&)> time = nullptr;
  std::vector<Variant> variants = {};  ///< Kernel::variants
  /// Kernel::trace; empty where the row has none.
  std::function<KernelTrace(const KernelCall&, const Contract&, const TraceRequest&)> trace = nullptr;
  DeclaredLimits limits = {};  ///< Kernel::limits
  std::string options = {};    ///< of a command, without which the row is not there: " --plugin mine.so"
  /// Is not called outside its limits: a program of somebody else's does not know them.
  bool only_inside = false;
  std::vector<std::string> compiled_for =
      {};  ///< keys of a call for each of whose values it is compiled anew
  /// Of a kernel with conventions of its own: how it gets its inputs. Empty: as they are.
  std::function<Given(const Contract&)> given = nullptr;
  std::vector<DeclaredTap> taps = {};  ///< OperatorKernel::taps
  Companion companion = {};            ///< of the recurrent family; without a name elsewhere
  /// Of named tensors: in which formats it is given inputs, where these are not the contract's.
  std::map<std::string, Format, std::less<>> formats = {};
  bool interpreted = false;  ///< an interpreter runs it, statement by statement: a plan gives it small calls
};

/// What a call shows of its case, with nothing of the call's own behind it: a call names its sizes and tensors by views of
/// what its run holds.
struct CallShape {
  explicit CallShape(const KernelCall& call);
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::optional<std::vector<std::int64_t>> lengths;  ///< tokens of each sequence of a packed batch
  std::int64_t batch, tokens, chunk, ranks;
  bool initial_state;
  HeadMap head_map;
  bool l2norm;
};

/// A kernel answered a call that it did not run it.
class Refused : public Unavailable {
 public:
  Refused(const Outcome& outcome, const KernelRow& row, CallShape call)
      : Unavailable(outcome), kernel(&row), call(std::move(call)) {}
  const KernelRow* kernel;
  CallShape call;
};

/// What a kernel threw: no exception of the judge is blamed on it.
class KernelThrew : public Error {
 public:
  using Error::Error;
};

/// Returns what the call gives. Throws KernelThrew for what it throws, but for the verdicts Unavailable, Trespass,
/// Unrepeatable and ThrewElsewhere, which a kernel of another process is found out by on the way.
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
    throw KernelThrew("the kernel threw something that is no std::exception");
  }
}

/// The kernel runs the call, of the case `of` where that is known. Throws Refused where it says that it did not, and
/// where the call lies outside the limits of one that is asked inside them alone; KernelThrew where it throws.
void run_row(const KernelRow& kernel, const KernelCall& call, const Contract& contract,
             const Case* of = nullptr);

/// What a case line would say of one call of a run of `c`: its sizes, T and chunk, and what it shows of the settings.
[[nodiscard]] Case as_called(Case c, const KernelRow& kernel, const CallShape& call);

/// Whether every call of the case that is this kernel's lies inside the limits that its row declares, and every other has a
/// kernel (has_kernels); false for what is no case. Calls that a law adds, with other chunks and cuts, are asked of when they are made.
[[nodiscard]] bool within_limits(const KernelRow& kernel, const Case& c);

/// Of `taps`, those that the kernel hands out in a case that asks for taps.
[[nodiscard]] std::vector<TensorSpec> handed_out(const KernelRow& kernel, std::vector<TensorSpec> taps,
                                                 const Resolved& r);

/// The row's contracts in canonical form, without the word `any`. Throws Error for one that is not there, and for none.
[[nodiscard]] std::vector<std::string> contracts_of(const std::string& kernel,
                                                    const std::vector<std::string>& declared);

/// A row of the table as the harness calls it. Throws Error for a system, a contract, a limit or a tap that is not there.
[[nodiscard]] KernelRow adapted(const CallKernel& kernel);
template <class Row>
[[nodiscard]] KernelRow adapted(const Row& kernel) {
  return adapted(by_call(kernel));
}

/// The kernels that evaluate the calls of a case. Where calls with and without chunks follow each other they
/// are made by two, whose names differ in their last part alone, `chunked` and `recurrent`.
struct KernelChoice {
  const KernelRow* named = nullptr;      ///< the one that the case is about
  const KernelRow* chunked = nullptr;    ///< of calls with chunks; null: there is none
  const KernelRow* unchunked = nullptr;  ///< of the others
};

/// The kernels that a case runs on: the table of this build and, where given, rows of plugins.
class KernelTable {
 public:
  /// Throw Error for a system or a contract that is not there.
  explicit KernelTable(std::span<const CallKernel> rows);
  explicit KernelTable(std::span<const Kernel> rows, std::span<const OperatorKernel> operators = {});

  /// All of them, in the order in which they came.
  [[nodiscard]] const std::vector<KernelRow>& all() const { return all_; }
  /// Those that `add` put there.
  [[nodiscard]] std::span<const KernelRow> added() const { return std::span(all_).subspan(own_); }
  /// Those that came as a Kernel.
  [[nodiscard]] std::span<const Kernel> rows() const { return rows_; }

  /// Appends rows. Throws Error where a name is taken or could not stand in a case line, or a row has no
  /// function, no known device or system, or no contract that is known.
  void add(std::span<const CallKernel> rows);
  void add(std::span<const Kernel> rows);
  void add(std::span<const OperatorKernel> rows);
  /// Rows that keep any contract promise this one too, so that cases of it are planned and run. Throws Error where it is
  /// none.
  void keep(std::string_view contract);
  /// No card is nearest: the twin gates every kernel (`--strict`).
  void hold_exact();

  /// Of one that was added, a subject: it is called inside its limits alone; whether it takes strides, the keys for which it
  /// is compiled anew, and how it gets its inputs. Throws Error for a name or a key that is not there.
  void converts(std::string_view name, bool strided, std::vector<std::string> compiled_for,
                std::function<Given(const Contract&)> given,
                std::map<std::string, Format, std::less<>> formats = {});
  /// Of one that was added: an interpreter runs it.
  void interpreted(std::string_view name);
  /// Sets the keys for which an added kernel is compiled anew. Throws Error as converts does.
  void compiled_for(std::string_view name, std::vector<std::string> keys);
  /// Of all rows that were added: what a printed command needs beside the line (KernelRow::options).
  void added_by(const std::string& options);

  /// Return the row of that name; the first one looks among rows(). Throw Error that lists the nearest names.
  [[nodiscard]] const Kernel& named(std::string_view name) const;
  [[nodiscard]] const KernelRow& row_named(std::string_view name) const;

  /// The kernels of a case: the one that it names, or the first of its system and form (all() has the CPU's first), and where
  /// calls of two forms may follow each other the other form's kernel of the same name, where that keeps the contract.
  /// Throws Error that lists the names.
  [[nodiscard]] KernelChoice choose(const Resolved& r) const;

  /// Whether the case runs on this row without naming it, so that its line need not.
  [[nodiscard]] bool is_standard(const KernelRow& row, Case c) const;

 private:
  void check(const CallKernel& row) const;
  void append(const Kernel& row);
  [[nodiscard]] const KernelRow* find(std::string_view name) const;
  /// Who stands beside whom, after rows or their contracts changed.
  void pair_rows();

  std::vector<Kernel> rows_;
  std::vector<KernelRow> all_;
  std::size_t own_ = 0;  ///< rows that were there from the start
};

}  // namespace samestate
