# Debian packages; README names them, gate.sh installs them.
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(Boost 1.74 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(pugixml REQUIRED)
find_package(CLI11 REQUIRED)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
find_library(MPFI_LIBRARY mpfi REQUIRED)
find_library(MPFR_LIBRARY mpfr REQUIRED)
find_library(GMP_LIBRARY gmp REQUIRED)

# Headers of Eigen and Boost are not ours to warn about.
add_library(samestate_eigen INTERFACE)
target_include_directories(samestate_eigen SYSTEM INTERFACE
  $<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>)
add_library(samestate_multiprecision INTERFACE)
target_include_directories(samestate_multiprecision SYSTEM INTERFACE ${Boost_INCLUDE_DIRS})
target_link_libraries(samestate_multiprecision INTERFACE ${MPFI_LIBRARY} ${MPFR_LIBRARY} ${GMP_LIBRARY})
