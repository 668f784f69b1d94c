#include "cli/interrupt.h"

#include <sys/mman.h>

#include <csignal>

namespace samestate::cli {
namespace {

volatile std::sig_atomic_t own = 0;
/// Shared with the processes that are made after note_interrupts(): workers ignore the signal itself.
volatile std::sig_atomic_t* noted = &own;
extern "C" void note_interrupt(int) { *noted = 1; }

}  // namespace

void note_interrupts() {
  if (noted == &own) {
    void* const page = ::mmap(nullptr, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) noted = static_cast<volatile std::sig_atomic_t*>(page);
  }
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return *noted != 0; }

}  // namespace samestate::cli
