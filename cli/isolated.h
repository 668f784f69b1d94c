#pragma once

#include <functional>
#include <string>

#include "oracles/verdict.h"

namespace samestate::cli {

/// Runs `body` in a child process and returns the exit code that it gives. Where the child is killed by a
/// signal, exits before `body` has ended, or takes longer than `timeout` seconds (0: no
/// limit), `lost` is called here instead, with crash or timeout and the reason. An Error of `body` is printed
/// by the child: 2.
[[nodiscard]] int run_isolated(const std::function<int()>& body, double timeout,
                               const std::function<int(Verdict, const std::string&)>& lost);

}  // namespace samestate::cli
