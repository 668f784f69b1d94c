# The packages that the C++ code needs: for each the package of CMake, a target or a header that it provides,
# and the package of Debian and Ubuntu that contains it. gate.sh installs those that are named here;
# samestateConfig.cmake.in asks the users of the package for the same.
set(samestate_missing "")
macro(samestate_need debian)
  find_package(${ARGN} QUIET)
  if(NOT ${ARGV1}_FOUND)
    list(APPEND samestate_missing ${debian})
  endif()
endmacro()
find_package(Threads REQUIRED)
samestate_need(libeigen3-dev Eigen3 3.4 NO_MODULE)
samestate_need(libboost-dev Boost 1.74)
samestate_need(libfmt-dev fmt)
samestate_need(nlohmann-json3-dev nlohmann_json)
samestate_need(libpugixml-dev pugixml)
samestate_need(libcli11-dev CLI11)
samestate_need(librapidcheck-dev rapidcheck)
foreach(row "librandom123-dev;RANDOM123_INCLUDE_DIR;Random123/philox.h" "libgmp-dev;GMP_INCLUDE_DIR;gmp.h"
    "libmpfr-dev;MPFR_INCLUDE_DIR;mpfr.h" "libmpfi-dev;MPFI_INCLUDE_DIR;mpfi.h")
  list(GET row 0 debian)
  list(GET row 1 variable)
  list(GET row 2 header)
  find_path(${variable} ${header})
  if(NOT ${variable})
    list(APPEND samestate_missing ${debian})
  endif()
endforeach()
if(samestate_missing)
  list(JOIN samestate_missing " " samestate_missing)
  message(FATAL_ERROR "The C++ build lacks: ${samestate_missing}\n"
    "These are the names of Debian and Ubuntu. Install them, then repeat the command that ended here:\n"
    "  sudo apt-get install ${samestate_missing}")
endif()
# Optional: `mpirun samestate` (docs/do/mpi.md) needs libopenmpi-dev or libmpich-dev.
if(NOT SAMESTATE_JUDGE_ONLY)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
include(system_headers)
