#include "cli/interrupt.h"

#include <csignal>

namespace samestate::cli {
namespace {

volatile std::sig_atomic_t noted = 0;
extern "C" void note_interrupt(int) { noted = 1; }

}  // namespace

void note_interrupts() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return noted != 0; }

}  // namespace samestate::cli
