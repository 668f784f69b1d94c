#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/study.h"

/// `samestate tolerance --observed`: whether an error that somebody measured is right.
namespace samestate::cli {

/// What of the errors of an output was measured.
enum class ErrorNorm {
  max,  ///< the largest absolute error of an element
  rms,  ///< the root of the mean of their squares
  rel   ///< their 2-norm over that of what is expected
};
[[nodiscard]] const char* name_of(ErrorNorm norm);
/// The norm of that name, which is one of max, rms and rel.
[[nodiscard]] ErrorNorm norm_named(std::string_view name);

/// An error that was measured; `output` is empty for the first output.
struct Observed {
  std::string output;
  double error = 0.0;
};

/// Of words ERROR or OUTPUT=ERROR. Throws Error for what is no number that an error can have.
[[nodiscard]] std::vector<Observed> observed_of(const std::vector<std::string>& words);

/// Where an observed error stands.
struct ObservedAnswer {
  enum class Kind {
    as_expected,  ///< no more than kRoom times what the kernel makes
    allowed,      ///< more than that, and no more than a correct kernel may make
    wrong,        ///< more than a correct kernel makes
    unknown       ///< there is no bound, or it says nothing
  };
  Kind kind = Kind::unknown;
  std::string output;
  ErrorNorm norm = ErrorNorm::max;
  double observed = 0.0;
  double expected = 0.0;  ///< measured, the largest of the seeds
  double allowed = 0.0;   ///< infinite without a bound
  std::string sentence = {};

  [[nodiscard]] const char* word() const;
};

/// Throws Error for an output that the case does not have.
[[nodiscard]] std::vector<ObservedAnswer> answers_of(const std::vector<Observed>& observed, ErrorNorm norm,
                                                     const Study& study);

/// The sentences, and what their numbers are of.
[[nodiscard]] std::string text_of(const std::vector<ObservedAnswer>& answers);

/// 1 where an observed error is wrong, 3 where nothing is known of one.
[[nodiscard]] Exit code_of(const std::vector<ObservedAnswer>& answers);

}  // namespace samestate::cli
