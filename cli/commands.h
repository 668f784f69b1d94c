#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

/// The verbs of the command (DESIGN 7). Each adds its options to `app`; the returned function runs it and
/// gives the exit code. This floor alone prints, exits and reads the environment.
namespace samestate::cli {

/// HARNESS 3. Bad input is 2 for every verb.
enum Exit : int {
  kPass = 0,
  kFail = 1,
  kUsage = 2,
  kVacuous = 3,
  kFlaky = 4,
  kCrash = 5,
  kNothingRan = 77,
};

/// CLI::Range lets NaN pass, and every comparison with NaN is false: a limit of NaN would never fail.
inline CLI::Validator finite_range(double low, double high) {
  const CLI::Range range(low, high);
  return {[range](std::string& text) {
            double value = 0.0;
            if (CLI::detail::lexical_cast(text, value) && std::isnan(value))
              return "Value " + text + " is no number";
            return range(text);
          },
          range.get_description()};
}

using Command = std::function<int()>;

Command add_gate(CLI::App& app);
Command add_fuzz(CLI::App& app);
Command add_repro(CLI::App& app);
Command add_judge(CLI::App& app);
Command add_list(CLI::App& app);
Command add_probe(CLI::App& app);
Command add_goldens(CLI::App& app);
Command add_equations(CLI::App& app);
Command add_laws(CLI::App& app);
Command add_sweep(CLI::App& app);
Command add_report(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_mutants(CLI::App& app);
Command add_bench(CLI::App& app);

}  // namespace samestate::cli
