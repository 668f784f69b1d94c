#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "fixtures/run_file.h"
#include "fixtures/safetensors.h"
#include "harness/captured/captured_calls.h"
#include "harness/cases/resolved.h"
#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

/// Settings for recorded calls that their declaration leaves open.
struct CapturedWords {
  std::string contract = {};  ///< empty: that of the declaration which has the recorded dtypes
  std::int64_t chunk = 0;     ///< 0: the call's own argument, or the limit of the declaration
  std::set<std::string, std::less<>> ignored = {};  ///< tensors that are neither read nor judged
};

/// A recorded call of the recurrent family, read head by head from its file: whatever its layout, dtypes and conventions, as
/// the oracles have it. It is opened without reading data but those of cu_seqlens.
class CapturedHeads {
 public:
  /// Throws Error that names the file: one that is damaged, or holds other tensors than the manifest says. Throws
  /// CapturedMismatch where the call is not one of the declaration's.
  CapturedHeads(const std::filesystem::path& folder, const CapturedCall& call,
                const CapturedFunction& function, const CapturedWords& words);

  /// The case that the call is an instance of; its data are the file's, whatever seed and regime the line has.
  [[nodiscard]] const Resolved& resolved() const { return *resolved_; }
  [[nodiscard]] const Family& family() const { return *family_; }
  [[nodiscard]] const BatchShape& shape() const { return shape_; }
  /// An input that the call changed, and is not to; empty: none.
  [[nodiscard]] const std::string& edited() const { return edited_; }
  /// The call's results themselves are not what was asked for: one is missing, or has another size; empty: they are.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  /// Returns true if there is an o of the size that is asked for.
  [[nodiscard]] bool has_o() const { return !o_.empty(); }
  /// Returns true if the call returned a final state that was asked for.
  [[nodiscard]] bool has_state() const { return !final_.empty(); }

  /// One head of one sequence, in float64, and what the kernel made of it: o [T_n, dv], final state [dk, dv]. Throws
  /// Error at the first input that is not finite.
  [[nodiscard]] Sequence<double> sequence(std::int64_t n, std::int64_t h) const;
  [[nodiscard]] Matrix<double> rows(std::int64_t n, std::int64_t h) const;
  [[nodiscard]] Matrix<double> state(std::int64_t n, std::int64_t h) const;
  /// The whole call as a run file, for an explanation; nothing where it is long, packed or has a norm of another epsilon.
  [[nodiscard]] std::optional<RunFile> run_file() const;

 private:
  [[nodiscard]] std::string tensor(std::string_view ours, bool required);
  [[nodiscard]] const CapturedValue* value(std::string_view ours) const;
  void take_sizes(Case& c);
  void take_lengths(Case& c);
  void take_settings(Case& c, const CapturedWords& words);
  void take_outputs(Case& c);
  void take_state(Case& c);
  void take_norm(Given& given) const;
  [[nodiscard]] std::string contract(const CapturedWords& words) const;
  void require_all_named(const CapturedWords& words);
  [[nodiscard]] Matrix<double> token_rows(const std::string& name, std::int64_t n, std::int64_t h,
                                          std::int64_t heads, std::int64_t width) const;
  [[nodiscard]] Matrix<double> state_in(const std::string& name, std::int64_t n, std::int64_t h) const;

  const CapturedCall& call_;
  const CapturedFunction& function_;
  const Conventions& conventions_;
  Safetensors file_;
  std::string q_, k_, v_, g_, beta_, initial_, lengths_, o_, final_, edited_, fault_;
  const Family* family_ = nullptr;
  BatchShape shape_;
  std::optional<Resolved> resolved_;
};

}  // namespace samestate
