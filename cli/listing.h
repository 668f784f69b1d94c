#pragma once

#include <string>
#include <vector>

namespace samestate::cli {

/// A table of strings with a header; every listing is one, for people or as JSON.
struct Listing {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  /// A column of system names; if there are many, people see only their number.
  std::string counted = {};
};

/// Counts what each system has, one row per system, from the tables themselves: forms of the reference, identities that
/// are evaluated in float64 and 50 digits (those that several systems share have a row of their own), kind of bound,
/// laws, regimes, kernels on each device with their recorded evidence, mutants, shapes of public models for `bench`,
/// and whether a plugin may bring kernels of it.
[[nodiscard]] Listing list_coverage(const std::string& evidence_folder);

}  // namespace samestate::cli
