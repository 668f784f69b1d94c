#pragma once

namespace samestate {

/// The RMS of `rows` >= 0 independent errors, in standard deviations of one, that is as improbable as one
/// error at kRowLambda, if that exceeds kHeadLimitFew: the quantile of chi squared. Below 8 rows it falls
/// from 5.00 (one row) to 2.50. Rows of different sizes s count as (sum s^2)^2 / sum s^4 rows of one size
/// (Satterthwaite): a head that one row dominates has that row's limit.
[[nodiscard]] double few_rows_limit(double rows);

/// From this many rows on the limit is kHeadLimitFew.
inline constexpr double kFewRows = 8.0;

}  // namespace samestate
