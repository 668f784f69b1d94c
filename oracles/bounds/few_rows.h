#pragma once

namespace samestate {

/// The RMS of `rows` >= 0 independent errors, in standard deviations of one, that is as improbable as one error at
/// kRowLambda, where that is more than kHeadLimitFew: the quantile of chi squared. Below 8 rows 5.00 (one) to 2.50.
/// Rows of different sizes s are as (sum s^2)^2 / sum s^4 rows of one (Satterthwaite): a head of which one row is the
/// most has that row's limit.
[[nodiscard]] double few_rows_limit(double rows);

/// From so many rows on it is kHeadLimitFew.
inline constexpr double kFewRows = 8.0;

}  // namespace samestate
