#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/system.h"
#include "harness/subjects/conventions.h"
#include "reference/contract.h"

namespace samestate {

/// A kernel as a subject declares it.
struct Declaration {
  std::string name, system, form, device = "cpu";
  std::vector<std::string> contracts, limits;
  std::vector<std::string> taps = {};  ///< CallKernel::taps
  Conventions conventions;
  std::vector<std::string> said = {};  ///< the keys of the conventions that it declares
  bool strided = false;
  bool packed = false;                    ///< for named tensors: CallKernel::packed
  bool interpreted = false;               ///< an interpreter runs it, so its calls should be small
  bool only_asked = false;                ///< plans try it only where the gate is asked for it
  bool deterministic = true;              ///< the same call gives the same bits
  bool device_memory = false;             ///< its tensors are in the device's memory ("memory": "cuda")
  std::vector<std::string> variant = {};  ///< keys of a call for each of whose values it is compiled anew
  std::string about;                      ///< about this kernel, as JSON; empty if it says nothing
};

/// A subject's answer before it is called, which describes its kernels.
struct Ready {
  std::vector<Declaration> kernels;
  std::string about;  ///< as JSON
};

/// Reads the line; nothing in it is trusted. Throws Error that names the kernel, the key or value, the limit
/// and the remedy: for invalid JSON, another protocol, no kernel, an unknown key or value, conventions that
/// contradict each other. Names, systems, contracts and limits are checked when the rows join the table
/// (KernelTable::add).
[[nodiscard]] Ready parse_ready(std::string_view line);

/// Throws Error if a convention does not apply to the kernel's system: those of the recurrent family for
/// named tensors, a null slot for a system without a pool, a dtype of the family that its contract
/// determines. `pool` is true if it has a pool.
void require_conventions(const Declaration& declaration, bool family, bool pool);

/// The limits that follow from the conventions, in the format of Kernel::limits: its own scale, an l2norm
/// that is always or never applied.
[[nodiscard]] std::vector<std::string> limits_of(const Conventions& conventions);
/// The limit of a kernel that has a scale of its own, dk^-1/2.
inline constexpr std::string_view kOwnScale = "scale = default";
/// Adds to the limits of such a kernel the widths for which dk^-1/2 is the default scale of the exact regimes, a power
/// of two.
void add_exact_widths(std::vector<std::string>& limits, const System& system);

/// For a system of named tensors: the formats of `dtypes`, by tensor (KernelRow::formats).
[[nodiscard]] std::map<std::string, Format, std::less<>> formats_of(const Conventions& conventions);

[[nodiscard]] std::string_view name_of(Dtype dtype);
/// Bytes per element.
[[nodiscard]] std::size_t size_of(Dtype dtype);

}  // namespace samestate
