#include "cli/interrupt.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <utility>

namespace samestate::cli {
namespace {

volatile std::sig_atomic_t own = 0;
/// Shared with the processes that are created after note_interrupts(): workers ignore the signal itself.
volatile std::sig_atomic_t* noted = &own;
volatile std::sig_atomic_t times = 0;
pid_t owner = 0;
volatile std::sig_atomic_t held = 0;  ///< the signal that HeldInterrupts holds back

extern "C" void note_interrupt(int signal) {
  *noted = 1;
  times = times + 1;
  if (times >= 3) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (times == 2 && ::getpid() == owner) {
    constexpr char kText[] =
        "\nsamestate: ending; the results are being written (interrupt again to end at once without them)\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  }
}

extern "C" void hold_interrupt(int signal) { held = signal; }

}  // namespace

HeldInterrupts::HeldInterrupts() {
  held = 0;
  struct sigaction action {};
  action.sa_handler = hold_interrupt;  // without SA_RESTART, so that waiting calls return and look
  for (const auto& [signal, before] :
       {std::pair{SIGINT, &interrupt_}, {SIGTERM, &terminate_}, {SIGHUP, &hang_up_}}) {
    ::sigaction(signal, nullptr, before);
    // A job that a script put into the background ignores it; such a job does not end even without this.
    if (before->sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

HeldInterrupts::~HeldInterrupts() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
  ::sigaction(SIGHUP, &hang_up_, nullptr);
  if (held != 0) std::raise(held);
}

bool HeldInterrupts::came() { return held != 0; }

void note_interrupts() {
  if (noted == &own) {
    void* const page = ::mmap(nullptr, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) noted = static_cast<volatile std::sig_atomic_t*>(page);
  }
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  owner = ::getpid();
  times = 0;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // Under nohup the signal is ignored, and this keeps it so.
  struct sigaction before {};
  if (::sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    ::sigaction(SIGHUP, &action, nullptr);
}

bool interrupted() { return *noted != 0; }

JobResult run_interruptibly(const std::function<std::string()>& body, double timeout) {
  if (owner == 0) {
    // If no handler is installed, the signal ends this process as usual, once the other process and
    // everything it started are gone.
    const HeldInterrupts held;
    return run_apart(body, timeout, HeldInterrupts::came);
  }
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kGrace(5);
  std::optional<Clock::time_point> since;
  return run_apart(body, timeout, [&] {
    if (!interrupted()) return false;
    if (!since) since = Clock::now();
    return Clock::now() - *since > kGrace;
  });
}

}  // namespace samestate::cli
