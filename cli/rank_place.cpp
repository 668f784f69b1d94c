#include "cli/rank_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "reference/error.h"

namespace samestate::cli {
namespace {

/// The environment variables in which mpirun gives the number of ranks and this rank: of Open MPI, and of
/// launchers that speak PMI (MPICH, srun --mpi=pmi2).
struct Names {
  const char *ranks, *rank;
  const char *locals, *local;  ///< on this rank's host
};
constexpr std::array<Names, 2> kNames = {{{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                          {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"}}};
constexpr int kMostRanks = 1 << 20;

/// With the value 0 each process is alone, whatever mpirun says.
constexpr const char* kSwitch = "SAMESTATE_RANKS";

int number_in(const char* name, int least, int most) {
  const char* const text = std::getenv(name);
  if (text == nullptr)
    throw Error(
        fmt::format("{} is not set, although mpirun sets it together with its other variables", name));
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != '\0' || value < least || value > most)
    throw Error(fmt::format("{} is '{}', but mpirun sets a number in {}..{}; unset it, or set {}=0", name,
                            text, least, most, kSwitch));
  return value;
}

}  // namespace

RankPlace rank_place() {
  const char* const own = std::getenv(kSwitch);
  if (own != nullptr && std::string_view(own) == "0") return {};
  for (const Names& names : kNames) {
    if (std::getenv(names.ranks) == nullptr) continue;
    const int ranks = number_in(names.ranks, 1, kMostRanks);
    RankPlace place{number_in(names.rank, 0, ranks - 1), ranks};
    // Not every launcher sets these; ranks are then assumed to be placed host after host, as many on each as
    // it has devices.
    place.local = std::getenv(names.local) != nullptr ? number_in(names.local, 0, kMostRanks) : place.rank;
    if (std::getenv(names.locals) != nullptr) place.locals = number_in(names.locals, 1, kMostRanks);
    return place;
  }
  return {};
}

int default_threads() {
  if (rank_place().ranks > 1) return 1;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace samestate::cli
