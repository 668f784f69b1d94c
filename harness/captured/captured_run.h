#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/run_file.h"
#include "fixtures/safetensors.h"
#include "harness/captured/captured_calls.h"
#include "harness/cases/resolved.h"
#include "oracles/given.h"

namespace samestate {

/// Settings of recorded calls that their declaration leaves open.
struct CapturedWords {
  std::string contract = {};  ///< if empty, the declared contract that has the recorded dtypes
  std::int64_t chunk = 0;     ///< if 0, the call's own argument or the declaration's limit
  std::set<std::string, std::less<>> ignored = {};  ///< tensors that are neither read nor judged
};

/// A recorded call as a run of a case of its declaration's system. It knows which of the file's tensors is
/// which of the system's under the conventions, and the sizes and settings that the recorded shapes and
/// arguments show. Only the data of cu_seqlens are read when it is opened.
class CapturedRun {
 public:
  /// Throws Error that names the file if it is damaged or contains other tensors than the manifest says.
  /// Throws CapturedMismatch if the declaration does not describe the call.
  CapturedRun(const std::filesystem::path& folder, const CapturedCall& call, const CapturedFunction& function,
              const CapturedWords& words);

  /// The case of which the call is an instance. Its data are the file's, whatever seed and regime the line
  /// has.
  [[nodiscard]] const Resolved& resolved() const { return *resolved_; }
  /// The form in which the kernel received g, beta, q and k.
  [[nodiscard]] const Given& given() const { return given_; }
  [[nodiscard]] const Conventions& conventions() const;
  /// The name of an input that the call changed although it must not; empty if there is none.
  [[nodiscard]] const std::string& edited() const { return edited_; }
  /// Describes what is wrong with the results themselves: one is missing or has another size. Empty if
  /// nothing is.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  /// Returns the name in the file of a tensor of the case, given its name in a run file; empty if the call
  /// has no such tensor, or none of that size.
  [[nodiscard]] const std::string& place(std::string_view name) const;
  [[nodiscard]] const Safetensors& file() const { return file_; }

  /// Returns the call with its data in the system's layout and conventions. nullopt if a result is missing.
  [[nodiscard]] std::optional<RunFile> run_file() const;

 private:
  /// A tensor of the system and its name in a run file.
  struct Wanted {
    TensorSpec spec;
    bool output;
    std::string name;
    std::vector<std::int64_t> shape;  ///< includes the batch's extent
  };
  [[nodiscard]] std::vector<Wanted> wanted(const Case& c) const;
  [[nodiscard]] std::string argument(std::string_view ours) const;
  [[nodiscard]] const CapturedValue* value(std::string_view ours) const;
  [[nodiscard]] std::vector<std::int64_t> in_our_layout(const Wanted& tensor,
                                                        std::vector<std::int64_t> shape) const;
  [[nodiscard]] std::vector<std::int64_t> in_its_layout(const Wanted& tensor, const Case& c) const;
  void require_options() const;
  void find_inputs(Case& c);
  void find_outputs(Case& c);
  [[nodiscard]] std::string final_state(const Case& c, std::size_t place);
  void take_sizes(Case& c) const;
  void take_lengths(Case& c) const;
  void take_chunk(Case& c, const CapturedWords& words) const;
  void take_family_settings(Case& c);
  void require_shapes(const Case& c);
  void require_all_named(const Case& c, const CapturedWords& words);
  [[nodiscard]] std::vector<std::string_view> values_read(const Case& c, const CapturedWords& words) const;
  [[nodiscard]] std::string contract(const Case& c, const CapturedWords& words) const;

  const CapturedCall& call_;
  const CapturedFunction& function_;
  const System* system_ = nullptr;
  Safetensors file_;
  std::map<std::string, std::string, std::less<>>
      places_;  ///< from the name in a run file to the name in this file
  std::string lengths_, edited_, fault_;
  Given given_;
  std::optional<Resolved> resolved_;
};

}  // namespace samestate
