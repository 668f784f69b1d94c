#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/subjects/conventions.h"
#include "reference/contract.h"

namespace samestate {

/// A kernel as a subject declares it.
struct Declaration {
  std::string name, system, form, device = "cpu";
  std::vector<std::string> contracts, limits;
  std::vector<std::string> taps = {};  ///< CallKernel::taps
  Conventions conventions;
  std::vector<std::string> said = {};  ///< the keys of its conventions
  bool strided = false;
  bool packed = false;                    ///< of named tensors: CallKernel::packed
  bool interpreted = false;               ///< an interpreter runs it: its calls are to be small
  bool device_memory = false;             ///< its tensors lie in the device's memory ("memory": "cuda")
  std::vector<std::string> variant = {};  ///< keys of a call for each of whose values it compiles anew
  std::string about;                      ///< of this kernel, as JSON; empty: it says nothing
};

/// What a subject says of itself before it is called.
struct Ready {
  std::vector<Declaration> kernels;
  std::string about;  ///< as JSON
};

/// Reads the line; nothing in it is trusted. Throws Error that names the kernel, the key or value, the limit and the remedy:
/// no JSON, another protocol, no kernel, an unknown key or value, conventions that contradict each other. Names, systems,
/// contracts and limits are looked at where the rows join the table (KernelTable::add).
[[nodiscard]] Ready parse_ready(std::string_view line);

/// Throws Error where a convention is one that the kernel's system has no use for: those of the recurrent family of named
/// tensors, a null slot of what has no pool, a dtype of the family that its contract says. `pool`: it has one.
void require_conventions(const Declaration& declaration, bool family, bool pool);

/// The limits that the conventions make, as of Kernel::limits: a scale of its own, an l2norm that is never or always there.
[[nodiscard]] std::vector<std::string> limits_of(const Conventions& conventions);

/// Of a system of named tensors: the formats of `dtypes`, by tensor (KernelRow::formats).
[[nodiscard]] std::map<std::string, Format, std::less<>> formats_of(const Conventions& conventions);

[[nodiscard]] std::string_view name_of(Dtype dtype);
/// Bytes of an element.
[[nodiscard]] std::size_t size_of(Dtype dtype);

}  // namespace samestate
