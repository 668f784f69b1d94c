#pragma once
#include <cstdlib>
namespace samestate::cuda {
inline int experiment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}
}  // namespace samestate::cuda
