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

/// Where mpirun says how many there are, and which one this is: Open MPI, and what speaks PMI (MPICH, srun --mpi=pmi2).
struct Names {
  const char *ranks, *rank;
};
constexpr std::array<Names, 2> kNames = {
    {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}}};

/// 0: each process is alone, whatever mpirun says.
constexpr const char* kSwitch = "SAMESTATE_RANKS";

int number_in(const char* name, int least, int most) {
  const char* const text = std::getenv(name);
  if (text == nullptr) throw Error(fmt::format("{} is not set: mpirun sets it with its other ones", name));
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != '\0' || value < least || value > most)
    throw Error(fmt::format("{} is '{}', and mpirun sets a number in {}..{}: unset it, or set {}=0", name,
                            text, least, most, kSwitch));
  return value;
}

}  // namespace

RankPlace rank_place() {
  const char* const own = std::getenv(kSwitch);
  if (own != nullptr && std::string_view(own) == "0") return {};
  for (const Names& names : kNames) {
    if (std::getenv(names.ranks) == nullptr) continue;
    const int ranks = number_in(names.ranks, 1, 1 << 20);
    return {number_in(names.rank, 0, ranks - 1), ranks};
  }
  return {};
}

int default_threads() {
  if (rank_place().ranks > 1) return 1;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace samestate::cli
