#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "fixtures/run_file.h"
#include "harness/captured/captured_heads.h"

namespace samestate {

/// A recorded call of a system of named tensors whose function takes the system's tensors in the system's layouts: their
/// sizes are read from the recorded shapes, and it is judged as a run file is.
class CapturedTensors {
 public:
  /// Throws as CapturedHeads does.
  CapturedTensors(const std::filesystem::path& folder, const CapturedCall& call,
                  const CapturedFunction& function, const CapturedWords& words);

  [[nodiscard]] const Resolved& resolved() const { return *resolved_; }
  [[nodiscard]] const std::string& edited() const { return edited_; }
  /// As CapturedHeads::fault(); then there is no run file.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  /// With the data, each value as it was recorded.
  [[nodiscard]] RunFile run_file() const;

 private:
  void find(const Resolved& r);
  void require_values(const Case& c, const CapturedWords& words) const;
  [[nodiscard]] std::string contract(const Resolved& r, const CapturedWords& words) const;

  const CapturedCall& call_;
  const CapturedFunction& function_;
  Safetensors file_;
  std::map<std::string, std::string> places_;  ///< a run file's name: this file's
  std::string edited_, fault_;
  std::optional<Resolved> resolved_;
};

}  // namespace samestate
