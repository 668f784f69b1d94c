#pragma once

#include <map>
#include <string>
#include <string_view>

#include "oracles/systems/operator.h"

namespace samestate {

/// Returns what the signature of a system says about sizes that do not fit together; empty if they do.
inline std::string error_of(std::string_view system, const std::map<std::string, Index, std::less<>>& changed,
                            Index tokens = 3) {
  const Operator& op = *find_operator(system);
  Call call;
  call.form = op.forms.front().name;
  call.tokens = tokens;
  for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
  for (const auto& [name, value] : changed) call.parameters[name] = value;
  try {
    (void)op.signature(call);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace samestate
