# Debian packages; gate.sh installs them. samestateConfig.cmake.in names the same ones for the users of the package.
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(Boost 1.74 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(pugixml REQUIRED)
find_package(CLI11 REQUIRED)
find_package(rapidcheck REQUIRED)
# Optional: `mpirun samestate` (docs/do/mpi.md), of libopenmpi-dev or libmpich-dev.
find_package(MPI QUIET COMPONENTS CXX)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
include(system_headers)
