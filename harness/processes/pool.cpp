#include "harness/processes/pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

constexpr int kTickMilliseconds = 50;  // a process that runs out of time does not say so
/// A process that stands still in this many consecutive checks has stopped.
constexpr int kStopLooks = 10;
constexpr std::chrono::seconds kStopTime(1);
constexpr int kMostStarts = 4;  // attempts for a process that dies before it is given a job
/// With less address space the judge itself runs out of memory in case after case, or ends.
constexpr std::uint64_t kLeastAddressSpace = std::uint64_t{2} << 30;

void require_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= kLeastAddressSpace) return;
  throw Error(
      fmt::format("ulimit -v leaves {} MiB of address space, and judging takes {} MiB: raise it, as by "
                  "ulimit -v unlimited",
                  limit.rlim_cur >> 20, kLeastAddressSpace >> 20));
}

}  // namespace

Pool::Pool(JobRunner run, const WorkerOptions& options) : run_(std::move(run)), options_(options) {
  require_address_space();
  if (options_.workers < 1) throw Error(fmt::format("{} workers: at least 1 is needed", options_.workers));
  if (options_.threads < 1) throw Error(fmt::format("{} threads: at least 1 is needed", options_.threads));
  // Every device needs at least one worker: otherwise a job that names a device without one would wait for
  // ever.
  if (options_.devices != nullptr)
    options_.workers = std::max(options_.workers, static_cast<int>(options_.devices->all().size()));
  if (options_.apart < 1) options_.apart = options_.workers * options_.threads;
  slots_.resize(static_cast<std::size_t>(options_.workers));
}

Pool::~Pool() {
  for (Worker& worker : workers_) (void)worker.process->end(!worker.flights.empty());
}

std::size_t Pool::in_flight() const {
  std::size_t count = 0;
  for (const Worker& worker : workers_) count += worker.flights.size();
  return count;
}

double Pool::age(const Flight& flight) const {
  return std::chrono::duration<double>(Clock::now() - flight.began).count();
}

double Pool::counted(const Flight& flight) const {
  const Clock::duration now = flight.paused ? Clock::now() - *flight.paused : Clock::duration{};
  return age(flight) - std::chrono::duration<double>(flight.excused + now).count();
}

std::size_t Pool::most() const {
  return static_cast<std::size_t>(options_.workers) * static_cast<std::size_t>(options_.threads);
}

std::unique_ptr<WorkerProcess> Pool::process_for(std::int64_t subject, int threads, int device) const {
  std::optional<std::string> gpus;
  if (options_.devices != nullptr) gpus = options_.devices->visible_to(device);
  return std::make_unique<WorkerProcess>(run_, subject, threads, options_.memory, gpus);
}

Pool::Worker& Pool::start(std::int64_t subject, int slot, int threads, int device) {
  Worker worker{process_for(subject, threads, device), subject, slot};
  worker.device = device;
  worker.number = ++processes_;
  workers_.push_back(std::move(worker));
  if (slot != kNoSlot) {
    Slot& of = slots_[static_cast<std::size_t>(slot)];
    of.worker = &workers_.back();
    of.served = subject;
  }
  return workers_.back();
}

/// Gives every slot a device that is left, with the slots spread evenly; a process on a lost device is given
/// nothing more.
void Pool::deal() {
  if (options_.devices == nullptr) return;
  const Devices& devices = *options_.devices;
  std::vector<int> loads(devices.all().size());
  const auto count = [&](int device) { ++loads[static_cast<std::size_t>(device)]; };
  for (Slot& slot : slots_) {
    if (slot.worker != nullptr && slot.worker->device != Devices::kNone &&
        !devices.is_left(slot.worker->device))
      detach(*slot.worker);
    if (!devices.is_left(slot.device)) slot.device = Devices::kNone;
    if (slot.device != Devices::kNone) count(slot.device);
  }
  for (Slot& slot : slots_) {
    if (slot.device != Devices::kNone) continue;
    slot.device = devices.least(loads);
    if (slot.device != Devices::kNone) count(slot.device);
  }
}

/// Returns the device for a process of its own: the one that the job names, or else the one with the fewest
/// processes.
int Pool::device_of(const Job& job) const {
  if (options_.devices == nullptr) return Devices::kNone;
  const Devices& devices = *options_.devices;
  const int named = devices.numbered(job.device);
  if (devices.is_left(named)) return named;
  std::vector<int> loads(devices.all().size());
  for (const Worker& worker : workers_) {
    if (worker.device != Devices::kNone) ++loads[static_cast<std::size_t>(worker.device)];
  }
  return devices.least(loads);
}

bool Pool::suits(const Job& job, const Slot& slot) const {
  if (options_.devices == nullptr || job.device.empty() || job.fresh) return true;
  const int named = options_.devices->numbered(job.device);
  return named == slot.device || !options_.devices->is_left(named);
}

/// Returns true if the worker's device is lost; its share is then given to the other devices.
bool Pool::is_gone(const Worker& worker, const std::string& said) {
  if (options_.devices == nullptr || worker.device == Devices::kNone) return false;
  if (!options_.devices->is_gone(worker.device, said)) return false;
  deal();
  return true;
}

/// Puts a job back to be given to another device.
void Pool::give_back(Flight flight) {
  if (flight.as.suspicion) return suspects_.push_front(flight.as);
  waiting_.push_front({std::move(flight.job), true});
}

void Pool::detach(Worker& worker) {
  if (worker.slot != kNoSlot) slots_[static_cast<std::size_t>(worker.slot)].worker = nullptr;
  worker.slot = kNoSlot;
}

/// A process that died while idle takes no job with it: the send fails, and another gets it.
void Pool::give(Worker& worker, Job job, Suspect as, const JobObserver& observer, bool announced) {
  Flight flight{next_id_++, std::move(job), Clock::now(), std::move(as)};
  flight.device = worker.device;
  ++worker.given;
  if (!announced && !flight.as.suspicion && observer.started) observer.started(flight.job);
  for (int starts = 1; !worker.process->send(flight.id, flight.job.text); ++starts) {
    if (starts == kMostStarts)
      throw Error("workers die before they are given a case: see stderr for their reason");
    if (!worker.flights.empty()) break;  // these jobs were lost with it, and this one would be lost too
    (void)worker.process->end(true);
    worker.process =
        process_for(worker.subject, worker.slot == kNoSlot ? 1 : options_.threads, worker.device);
    worker.given = 1;
    worker.number = ++processes_;
  }
  flight.began = Clock::now();
  flight.process = worker.number;
  worker.flights.push_back(std::move(flight));
}

/// Returns the next job for a slot. A job that names another device waits there for that device.
std::optional<Pool::Waiting> Pool::next_for(const Slot& slot, const NextJob& next) {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (!suits(at->job, slot)) continue;
    Waiting found = std::move(*at);
    waiting_.erase(at);
    return found;
  }
  while (waiting_.size() < 2 * most()) {
    std::optional<Job> job = next(slot.served);
    if (!job) break;
    if (suits(*job, slot)) return Waiting{std::move(*job), false};
    waiting_.push_back({std::move(*job), false});
  }
  return std::nullopt;
}

/// Returns true if the slot was given a job.
bool Pool::fill_slot(int number, const NextJob& next, const JobObserver& observer) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  bool given = false;
  while (in_flight() < most() &&
         (slot.worker == nullptr || std::ssize(slot.worker->flights) < options_.threads)) {
    std::optional<Waiting> waiting = next_for(slot, next);
    if (!waiting) break;
    given = true;
    Job& job = waiting->job;
    if (job.fresh) {
      Worker& alone = start(job.subject, kNoSlot, 1, device_of(job));
      give(alone, std::move(job), {}, observer, waiting->announced);
      continue;
    }
    // Whatever a subject left behind (threads, static variables, a damaged heap) ends with its process.
    if (slot.worker != nullptr && slot.worker->subject != job.subject) {
      detach(*slot.worker);
      let_go(observer);
    }
    Worker& worker =
        slot.worker != nullptr ? *slot.worker : start(job.subject, number, options_.threads, slot.device);
    give(worker, std::move(job), {}, observer, waiting->announced);
  }
  return given;
}

void Pool::fill(const NextJob& next, const JobObserver& observer) {
  const auto alone = [&] {
    return std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) {
      return !w.flights.empty() && w.flights.front().as.suspicion != nullptr;
    });
  };
  while (!suspects_.empty() && in_flight() < most() && alone() < options_.apart) {
    const Suspect suspect = suspects_.front();
    suspects_.pop_front();
    const Job& job = suspect.member->job;
    give(start(job.subject, kNoSlot, 1, device_of(job)), job, suspect, observer);
  }
  // A slot may find a job that an earlier slot can run.
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < static_cast<int>(slots_.size()); ++i) again |= fill_slot(i, next, observer);
    again = again && !waiting_.empty();
  }
}

void Pool::wait_for_messages(const JobObserver& observer) {
  std::vector<pollfd> waiting;
  std::vector<Worker*> workers;
  for (Worker& worker : workers_) {
    waiting.push_back({worker.process->socket(), POLLIN, 0});
    workers.push_back(&worker);
  }
  // -1 stands for none
  for (Worker& worker : workers_) waiting.push_back({worker.process->printed(), POLLIN, 0});
  if (observer.elsewhere != nullptr) waiting.push_back({observer.elsewhere->descriptor(), POLLIN, 0});
  const int ready = ::poll(waiting.data(), waiting.size(), kTickMilliseconds);
  if (ready < 0 && errno != EINTR) throw std::runtime_error("poll failed");
  for (std::size_t i = 0; ready > 0 && i < workers.size(); ++i) {
    if (waiting[workers.size() + i].revents != 0) workers[i]->process->take_printed();
    if (waiting[i].revents != 0) collect(*workers[i], observer);
  }
}

void Pool::collect(Worker& worker, const JobObserver& observer) {
  std::vector<WorkerMessage> messages;
  const bool open = worker.process->receive(messages);
  for (WorkerMessage& message : messages) {
    const auto found = std::find_if(worker.flights.begin(), worker.flights.end(),
                                    [&](const Flight& flight) { return flight.id == message.id; });
    if (found == worker.flights.end()) continue;
    if (message.kind == WorkerMessage::Kind::pauses) {
      if (!found->paused) found->paused = Clock::now();
      found->most_paused = std::strtod(message.answer.text.c_str(), nullptr);
      continue;
    }
    if (message.kind == WorkerMessage::Kind::goes_on) {
      if (found->paused) found->excused += Clock::now() - *found->paused;
      found->paused.reset();
      continue;
    }
    Flight flight = std::move(*found);
    worker.flights.erase(found);
    take(worker, std::move(flight), std::move(message), observer);
  }
  if (open) return;
  detach(worker);
  // It is about to end: report how it ends by itself, unless it stays.
  lose(worker, JobResult::Kind::died, worker.process->end(false), observer);
}

void Pool::take(Worker& worker, Flight flight, WorkerMessage message, const JobObserver& observer) {
  if (message.kind == WorkerMessage::Kind::error) throw Error(message.answer.text);
  if (message.kind == WorkerMessage::Kind::internal_error) {
    // If an earlier job damaged the heap, the harness itself throws: only a fresh process gives a certain
    // answer.
    if (worker.given == 1) throw std::runtime_error(message.answer.text);
    detach(worker);
    suspect(worker, std::move(flight), {"broken", message.answer.text});
    return;
  }
  const bool broken = !message.answer.broken.empty();
  // A process that breaks does not report the same thing the next time.
  if (!message.answer.misses.empty() && is_gone(worker, broken ? "" : message.answer.misses)) {
    give_back(std::move(flight));
    return;
  }
  if (broken) detach(worker);
  // The process may have been broken by the job that ran at the same time as the one that found it broken.
  if (broken && (worker.suspicion || !worker.flights.empty())) {
    suspect(worker, std::move(flight), {"broken", message.answer.broken});
    return;
  }
  JobResult result;
  result.text = std::move(message.answer.text);
  result.seconds = age(flight);
  deliver(flight, std::move(result), broken, observer);
}

bool Pool::paused_too_long(const Flight& flight) {
  if (!flight.paused || flight.most_paused <= 0.0) return false;
  return std::chrono::duration<double>(Clock::now() - *flight.paused).count() > flight.most_paused;
}

/// Returns the signal that stopped the process; 0 if none did or if it may still be continued. A terminal
/// that suspends and resumes a job does so to the judge as well, and the judge may be the first of the two to
/// run again.
int Pool::stopped_for_good(Worker& worker) {
  const int signal = worker.flights.empty() ? 0 : worker.process->stopped();
  if (signal == 0) return worker.stop.looks = 0;
  if (worker.stop.looks++ == 0) worker.stop.since = Clock::now();
  return worker.stop.looks >= kStopLooks && Clock::now() - worker.stop.since > kStopTime ? signal : 0;
}

void Pool::look_at_the_clock(const JobObserver& observer) {
  for (Worker& worker : workers_) {
    if (const int signal = stopped_for_good(worker); signal != 0) {
      detach(worker);
      (void)worker.process->end(true);
      lose(worker, JobResult::Kind::died,
           {"signal",
            fmt::format("the kernel's process was stopped by signal {} ({}) and did not go on", signal,
                        ::strsignal(signal)),
            true},
           observer);
      continue;
    }
    const auto late = std::ranges::find_if(worker.flights, paused_too_long);
    if (late != worker.flights.end()) {
      const std::string reason = fmt::format("not loaded after {:g} s (--start-timeout)", late->most_paused);
      detach(worker);
      (void)worker.process->end(true);
      lose(worker, JobResult::Kind::hung, {"timeout", reason}, observer);
      continue;
    }
    if (options_.timeout <= 0) continue;
    double oldest = 0.0;
    for (const Flight& flight : worker.flights) oldest = std::max(oldest, counted(flight));
    if (oldest > options_.timeout) {
      detach(worker);
      (void)worker.process->end(true);
      lose(worker, JobResult::Kind::hung,
           {"timeout", fmt::format("no answer after {:g} s (--timeout)", options_.timeout)}, observer);
    } else if (oldest > options_.timeout / 2 && options_.threads > 1) {
      detach(worker);
    }
  }
}

/// Handles a process that is gone.
void Pool::lose(Worker& worker, JobResult::Kind kind, const WorkerEnd& end, const JobObserver& observer) {
  std::vector<Flight> flights = std::exchange(worker.flights, {});
  if (!flights.empty() && is_gone(worker, "")) {
    for (Flight& flight : flights) give_back(std::move(flight));
    return;
  }
  const bool unsure =
      kind == JobResult::Kind::died && options_.confirm && (worker.given > 1 || end.from_outside);
  const bool alone = flights.size() == 1 && !worker.suspicion && !unsure;
  for (Flight& flight : flights) {
    if (!alone && !flight.as.suspicion) {
      suspect(worker, std::move(flight), end);
      continue;
    }
    JobResult result;
    result.kind = kind;
    result.how = end.how;
    result.reason = end.reason;
    result.seconds = age(flight);
    deliver(flight, std::move(result), true, observer);
  }
}

void Pool::suspect(Worker& worker, Flight flight, const WorkerEnd& end) {
  if (!worker.suspicion) {
    worker.suspicion = std::make_shared<Suspicion>();
    worker.suspicion->how = end.how;
    worker.suspicion->reason = end.reason;
  }
  const double seconds = age(flight);
  worker.suspicion->members.push_back({std::move(flight.job), std::nullopt, seconds});
  suspects_.push_back({worker.suspicion, &worker.suspicion->members.back()});
}

void Pool::deliver(Flight& flight, JobResult result, bool repeats, const JobObserver& observer) {
  result.process = flight.process;
  result.order = flight.id;
  if (flight.device != Devices::kNone) result.device = options_.devices->at(flight.device).id;
  const auto& [suspicion, member] = flight.as;
  if (!suspicion) {
    if (observer.finished) observer.finished(flight.job, std::move(result));
    return;
  }
  member->alone = std::move(result);
  suspicion->repeated |= repeats;
  settle(*suspicion, observer);
}

void Pool::settle(Suspicion& suspicion, const JobObserver& observer) {
  const auto open = [](const Suspicion::Member& member) { return !member.alone; };
  if (!suspicion.closed || std::any_of(suspicion.members.begin(), suspicion.members.end(), open)) return;
  for (const Suspicion::Member& member : suspicion.members) {
    JobResult result = *member.alone;
    if (!suspicion.repeated) {
      result.kind = JobResult::Kind::unrepeated;
      result.how = suspicion.how;
      result.reason = suspicion.reason;
      result.seconds = member.seconds;
      for (const Suspicion::Member& other : suspicion.members) {
        if (&other != &member) result.beside.push_back(other.job.text);
      }
    }
    if (observer.finished) observer.finished(member.job, std::move(result));
  }
}

/// Ends the processes that are given nothing more and have no work left.
void Pool::let_go(const JobObserver& observer) {
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    if (worker->slot != kNoSlot || !worker->flights.empty()) {
      ++worker;
      continue;
    }
    const std::shared_ptr<Suspicion> suspicion = worker->suspicion;
    (void)worker->process->end(suspicion != nullptr);
    worker = workers_.erase(worker);
    if (suspicion) {
      suspicion->closed = true;
      settle(*suspicion, observer);
    }
  }
}

/// The next user of the pool then finds it without the jobs of this run.
void Pool::abandon() {
  for (Slot& slot : slots_) slot.worker = nullptr, slot.served = kNoSubject;
  workers_.clear();
  suspects_.clear();
  waiting_.clear();
}

void Pool::run(const NextJob& next, const JobObserver& observer) {
  deal();
  try {
    while (true) {
      let_go(observer);
      // This comes first, since a message from elsewhere may give the processes here something to do.
      const bool elsewhere = observer.elsewhere != nullptr && observer.elsewhere->turn();
      fill(next, observer);
      if (in_flight() == 0 && suspects_.empty() && waiting_.empty() && !elsewhere) return;
      if (observer.stop && observer.stop()) return abandon();
      wait_for_messages(observer);
      look_at_the_clock(observer);
    }
  } catch (...) {
    abandon();
    throw;
  }
}

JobResult Pool::run_one(Job job, std::function<bool()> stop) {
  // This is the result if the run is stopped before the process has answered.
  JobResult out;
  out.kind = JobResult::Kind::hung;
  out.how = "interrupt";
  out.reason = "interrupted while it ran";
  bool given = false;
  run(
      [&](std::int64_t) -> std::optional<Job> {
        if (std::exchange(given, true)) return std::nullopt;
        return std::move(job);
      },
      {{}, [&](const Job&, JobResult result) { out = std::move(result); }, std::move(stop)});
  return out;
}

JobResult run_apart(const std::function<std::string()>& body, double timeout, std::function<bool()> stop) {
  WorkerOptions one;
  one.timeout = timeout;
  Pool pool([&](std::int64_t, const std::string&) { return Answer{body(), {}}; }, one);
  return pool.run_one({}, std::move(stop));
}

}  // namespace samestate
