#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/study.h"

/// `samestate tolerance --observed` says whether an error that somebody measured is right.
namespace samestate::cli {

/// How the error of an output was measured.
enum class ErrorNorm {
  max,  ///< the largest absolute error of an element
  rms,  ///< the root of the mean of their squares
  rel   ///< their 2-norm divided by that of the expected values
};
[[nodiscard]] const char* name_of(ErrorNorm norm);
/// Returns the norm with that name, which is max, rms or rel.
[[nodiscard]] ErrorNorm norm_named(std::string_view name);

/// An error that was measured; `output` is empty for the first output.
struct Observed {
  std::string output;
  double error = 0.0;
};

/// Parses words of the form ERROR or OUTPUT=ERROR. Throws Error if ERROR is not a finite number of at least 0.
[[nodiscard]] std::vector<Observed> observed_of(const std::vector<std::string>& words);

/// Where an observed error stands between what is expected and what is allowed.
struct ObservedAnswer {
  enum class Kind {
    as_expected,  ///< at most kRoom times the error that the kernel has
    allowed,      ///< more than that, but at most what a correct kernel may have
    wrong,        ///< more than a correct kernel may have
    unknown       ///< there is no bound, or it is as large as the output
  };
  Kind kind = Kind::unknown;
  std::string output;
  ErrorNorm norm = ErrorNorm::max;
  double observed = 0.0;
  double expected = 0.0;  ///< the largest that was measured over the seeds
  double allowed = 0.0;   ///< infinite without a bound
  std::string sentence = {};

  [[nodiscard]] const char* word() const;
};

/// Compares each observed error with the study. Throws Error for an output that the case does not have.
[[nodiscard]] std::vector<ObservedAnswer> answers_of(const std::vector<Observed>& observed, ErrorNorm norm,
                                                     const Study& study);

/// Returns the sentences, and a remark about which data their numbers hold for.
[[nodiscard]] std::string observed_text(const std::vector<ObservedAnswer>& answers);

/// Returns 1 if an observed error is wrong, and 3 if nothing is known about one.
[[nodiscard]] Exit code_of(const std::vector<ObservedAnswer>& answers);

}  // namespace samestate::cli
