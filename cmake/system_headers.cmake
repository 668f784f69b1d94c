# Makes the compiler ignore warnings in headers of Eigen and Boost. Read by the build and, once installed, by
# samestateConfig.cmake: imported targets are used, so that the package contains no path of the machine that
# made it. Eigen3 and Boost must have been found.
find_library(MPFI_LIBRARY mpfi REQUIRED)
find_library(MPFR_LIBRARY mpfr REQUIRED)
find_library(GMP_LIBRARY gmp REQUIRED)
mark_as_advanced(MPFI_LIBRARY MPFR_LIBRARY GMP_LIBRARY)

if(NOT TARGET samestate_eigen)
  add_library(samestate_eigen INTERFACE IMPORTED GLOBAL)
  target_link_libraries(samestate_eigen INTERFACE Eigen3::Eigen)
  add_library(samestate_multiprecision INTERFACE IMPORTED GLOBAL)
  target_link_libraries(samestate_multiprecision INTERFACE Boost::headers ${MPFI_LIBRARY} ${MPFR_LIBRARY}
    ${GMP_LIBRARY})
endif()
