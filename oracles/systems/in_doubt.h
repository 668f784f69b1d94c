#pragma once

#include <cstdint>

#include "oracles/systems/operator_twin.h"

/// Of a contract without rounding points: whether a run that its worst case passed is worth thirty-two samples.
namespace samestate {

/// Whether a row has an error that inputs moved by a rounding do not make, where the worst case has room for one.
///
/// Room: the row's tolerance is above kRoomOfWorstCase of its size (RMS over its columns both).
/// Moved: the inputs are x (1 + u xi), xi uniform in (-1, 1) and one for each place, u = 2^-24; what that makes of a row in
/// float64, sigma_r^2 = mean_m mean_c (y_m - y)_rc^2 + (u RMS(y_r))^2 over kMovedInputs evaluations, is how the data carry
/// roundings on. An error is in doubt above kDoubt sigma_r, a single element's above four times that; and above u n of the
/// row's size for the n tokens that it may sum: where many of a softmax's keys have one score (tokens of small scale), a sum
/// that one weight of 1 begins rounds each of the others to the same side, which no drawn rounding does.
///
/// It decides nothing: what is in doubt is judged by drawn roundings, which have their limits by themselves, and what is not
/// errs by less than kDoubt roundings of the inputs. Rows of undecided tokens, which no sample judges, are left out.
[[nodiscard]] bool in_doubt(const TwinSubject& of, const Tensors<double>& actual, std::uint64_t seed);

/// The most tokens that one of them meets, itself too.
[[nodiscard]] Index tokens_met(const TwinSubject& of);

/// Whether more than kAlikeTokens tokens of an input are one token again and again: a kernel makes the same roundings of each,
/// and their sum is n of one, where drawn ones cancel to sqrt(n).
[[nodiscard]] bool roundings_repeat(const TwinSubject& of);

}  // namespace samestate
