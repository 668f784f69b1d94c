#include "harness/run/collect_spent.h"

namespace samestate {
namespace {

thread_local CollectSpent* collecting = nullptr;

}  // namespace

CollectSpent::CollectSpent() : outer_(collecting) { collecting = this; }

CollectSpent::~CollectSpent() { collecting = outer_; }

void CollectSpent::note(const Spent& more) {
  if (collecting != nullptr) collecting->spent_ += more;
}

}  // namespace samestate
