# Debian packages; gate.sh installs them. samestateConfig.cmake.in names the same ones for the users of the package.
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(Boost 1.74 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(pugixml REQUIRED)
find_package(CLI11 REQUIRED)
find_package(rapidcheck REQUIRED)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
include(system_headers)

# The oracles allocate a matrix a step: glibc's malloc is a tenth of what a gate costs. The library of the runtime package
# is enough; sanitizers bring an allocator of their own.
if(NOT SAMESTATE_SANITIZE)
  find_library(SAMESTATE_TCMALLOC NAMES tcmalloc_minimal libtcmalloc_minimal.so.4)
endif()
