#pragma once

// Eigen's traits of multiprecision numbers come with Boost.
#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfi.hpp>
#include <boost/multiprecision/mpfr.hpp>

/// The scalars beyond double on which the references run. Their expression templates are off, because Eigen
/// brings its own.
namespace samestate {

namespace mp = boost::multiprecision;

using Decimal50 = mp::number<mp::mpfr_float_backend<50, mp::allocate_stack>, mp::et_off>;
using Decimal100 = mp::number<mp::mpfr_float_backend<100, mp::allocate_stack>, mp::et_off>;

/// An interval of 50-digit numbers, rounded outwards at every step. It encloses the exact value, so the
/// distance to its far end bounds the error of any other evaluation, including the float64 one.
using Interval = mp::number<mp::mpfi_float_backend<50>, mp::et_off>;

}  // namespace samestate
