#include "harness/cases/layout.h"

#include <string>

#include "reference/error.h"

namespace samestate {

Layout layout_named(std::string_view name) {
  if (name == "dense") return Layout::dense;
  if (name == "padded") return Layout::padded;
  if (name == "far") return Layout::far;
  throw Error("layout=" + std::string(name) + ": must be one of dense, padded, far");
}

}  // namespace samestate
