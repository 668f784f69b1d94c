#include "harness/subjects/subject.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "fixtures/quote.h"
#include "harness/cases/system.h"
#include "harness/run/call_loop.h"
#include "harness/run/call_variant.h"
#include "harness/run/collect_spent.h"
#include "harness/subjects/conversation.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/said_once.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The conversations of a process. Every calling process has its own, and each of its threads has a seat in
/// one during a call. If their number is limited, a thread waits for a seat before it calls, while other
/// threads judge the results of their calls.
class Line {
  /// A subject's process with its conversation; it may be marked as taking no more calls.
  struct Talk {
    Conversation conversation;
    bool retired = false;
  };
  /// A lane of a conversation; a null `talk` means one that is yet to be started.
  struct Seat {
    std::shared_ptr<Talk> talk;
    int lane = 0;
  };

  static constexpr int kMostFailures = 3;
  /// Limits on the processes that are started to retry a call that threw, and on their seconds: beyond either
  /// no more are started.
  static constexpr int kMostTried = 20;
  static constexpr double kMostTrying = 60.0;

  /// Shared by all processes that were forked off.
  struct Shared {
    std::atomic<int> failures = 0;  ///< consecutive failed starts
    std::atomic<int> tried = 0;
    std::atomic<double> trying = 0.0;
  };

 public:
  Line(std::string spec, const SubjectPatience& patience) : spec_(std::move(spec)), patience_(patience) {
    // It is kept while the process lives, as the rows are.
    void* shared = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Error(fmt::format("no memory to share ({})", std::strerror(errno)));
    shared_ = new (shared) Shared();
  }

  Outcome run(EdgeCall& call, const std::string& kernel) {
    while (true) {
      Seat own = take(kernel);
      try {
        Outcome outcome = run_in(own, call, kernel);
        give_back(std::move(own), kernel);
        return outcome;
      } catch (const EndedBefore&) {
        give_back(std::move(own), kernel);
      } catch (...) {
        give_back(std::move(own), kernel);
        throw;
      }
    }
  }

  /// To be called before the first call. `most` is the number of conversations at a time, 0 for no limit;
  /// `lanes` is the number of calls in each.
  void limit(int most, int lanes) {
    most_ = most;
    lanes_ = lanes;
  }

 private:
  /// Makes a call. If the kernel throws after other calls of its process, at a place where it is not known to
  /// throw in a process that had run nothing before, a new process takes the place of that one and gets the
  /// same call. If it throws there too, that is how the kernel behaves. Otherwise the earlier calls damaged
  /// the first process, whose later answers would say nothing about the kernel.
  Outcome run_in(Seat& own, EdgeCall& call, const std::string& kernel) {
    Conversation::Call made{.lane = own.lane};
    try {
      return own.talk->conversation.run(call, kernel, made);
    } catch (const ThrewElsewhere& thrown) {
      const std::string place = kernel + '\n' + made.thrown;
      {
        const std::scoped_lock lock(mutex_);
        if (made.number == 1) known_.insert(place);
        const bool spent = shared_->tried.load() >= kMostTried && shared_->trying.load() >= kMostTrying;
        if (known_.contains(place) || spent || !own.talk->conversation.is_child()) throw;
        retire(*own.talk);
        ++open_;
      }
      shared_->tried.fetch_add(1);
      const auto began = Clock::now();
      {
        const ExcusedTime excused;
        own = {};
        try {
          own = started();
        } catch (const Error& error) {
          throw std::runtime_error(fmt::format("{}; and a new process: {}", thrown.what(), error.what()));
        }
        CollectSpent::note({.start = seconds_since(began)});
      }
      shared_->trying.fetch_add(seconds_since(began));
      const auto damaged = [&thrown](const char* how) {
        return ThrewElsewhere(
            fmt::format("{}; a new process {} in the same call: an earlier call damaged the process that did",
                        thrown.what(), how),
            false);
      };
      made = {.lane = own.lane};
      try {
        (void)own.talk->conversation.run(call, kernel, made);
      } catch (const ThrewElsewhere&) {
        if (kernel + '\n' + made.thrown != place) throw damaged("threw elsewhere");
        const std::scoped_lock lock(mutex_);
        known_.insert(place);
        throw;
      }
      throw damaged("did not throw");
    }
  }

  /// Starts a conversation in the place of one that open_ already counts; its other lanes become free.
  Seat started() {
    Seat own{std::shared_ptr<Talk>(new Talk{{spec_, patience_, &traces_, lanes_}})};
    {
      const std::scoped_lock lock(mutex_);
      for (int lane = 1; lane < lanes_; ++lane) idle_.push_back({own.talk, lane});
    }
    free_.notify_all();
    return own;
  }

  /// Called under the lock: the process gets no more calls, and another may be started in its place.
  void retire(Talk& talk) {
    if (talk.retired) return;
    talk.retired = true;
    --open_;
    std::erase_if(idle_, [&](const Seat& seat) { return seat.talk.get() == &talk; });
  }

  void give_back(Seat seat, const std::string& kernel) {
    {
      const std::scoped_lock lock(mutex_);
      compiling_.erase(variant_of_call(kernel));
      if (seat.talk == nullptr) {
        --open_;
      } else if (!seat.talk->conversation.good()) {
        retire(*seat.talk);
      } else if (!seat.talk->retired) {
        idle_.push_back(std::move(seat));
      }
    }
    free_.notify_all();
  }

  /// Returns a free seat: one whose process has compiled the call if possible, otherwise an idle one; null
  /// means that a new one may be started.
  Seat idle_one(const std::string& kernel) {
    const std::string variant = variant_of_call(kernel);
    std::unique_lock lock(mutex_);
    if (process_ != ::getpid()) {
      // They belong to the parent, and closing them is not up to this process.
      (void)new std::vector<Seat>(std::exchange(idle_, {}));
      compiling_.clear();
      open_ = 0;
      process_ = ::getpid();
    }
    const auto compiled = [&](const Seat& seat) { return seat.talk->conversation.has_compiled(variant); };
    const auto silent = [&](const Seat& seat) {
      return std::ranges::count(idle_, seat.talk, &Seat::talk) == lanes_;
    };
    // When one of several is compiling a variant, the others wait and load it from the cache of its package.
    const auto free = [&] {
      return most_ <= 0 || std::ranges::any_of(idle_, compiled) ||
             ((!idle_.empty() || open_ < most_) && !compiling_.contains(variant));
    };
    if (!free()) {
      const ExcusedTime excused;
      const auto began = Clock::now();
      // The process that it waits for has its own time limits.
      while (!free_.wait_for(lock, std::chrono::milliseconds(200), free)) {
        if (patience_.stop && patience_.stop())
          throw Unavailable({Outcome::Kind::no_device, "interrupted while it waited for the subject"});
      }
      CollectSpent::note({.waiting = seconds_since(began)});
    }
    auto chosen =
        std::ranges::find_if(idle_, [&](const Seat& seat) { return compiled(seat) && silent(seat); });
    if (chosen == idle_.end()) chosen = std::ranges::find_if(idle_, compiled);
    if (chosen == idle_.end()) {
      compiling_.insert(variant);
      chosen = std::ranges::find_if(idle_, silent);
    }
    if (chosen == idle_.end() && (idle_.empty() || open_ < most_)) {
      ++open_;
      return {};
    }
    if (chosen == idle_.end()) chosen = std::prev(idle_.end());
    Seat own = std::move(*chosen);
    idle_.erase(chosen);
    return own;
  }

  Seat take(const std::string& kernel) {
    if (Seat own = idle_one(kernel); own.talk != nullptr) return own;
    const auto not_started = [&] {
      {
        const std::scoped_lock lock(mutex_);
        compiling_.erase(variant_of_call(kernel));
        --open_;
      }
      free_.notify_all();
    };
    if (const int times = shared_->failures.load(); times >= kMostFailures) {
      not_started();
      throw std::runtime_error(
          fmt::format("--subject {}: it failed to start {} times running, and is not started again",
                      quote(spec_), times));
    }
    try {
      const ExcusedTime excused;
      const auto began = Clock::now();
      Seat own = started();
      CollectSpent::note({.start = seconds_since(began)});
      shared_->failures.store(0);
      return own;
    } catch (const Error& error) {
      not_started();
      if (patience_.stop && patience_.stop())
        throw Unavailable({Outcome::Kind::no_device, "interrupted while the subject started"});
      shared_->failures.fetch_add(1);
      // It is an error of this case only.
      throw std::runtime_error(error.what());
    }
  }

  std::string spec_;
  SubjectPatience patience_;
  SaidOnce traces_;
  std::mutex mutex_;
  std::condition_variable free_;
  pid_t process_ = ::getpid();
  std::vector<Seat> idle_;
  std::set<std::string> compiling_;  ///< variants whose first call is running
  int open_ = 0;                     ///< conversations that are idle or in use
  int most_ = 0;                     ///< 0 means no limit
  int lanes_ = 1;
  std::set<std::string> known_;  ///< kernels, and where they threw in a process that had run nothing before
  Shared* shared_ = nullptr;
};

bool is_family(const Declaration& d) { return system_named(d.system).of_family(); }

/// Rows that differ only in their form serve one decoded case, whose oracle reads its inputs in one way.
void require_alike(const std::vector<Declaration>& declared) {
  const auto stem = [](const Declaration& d) { return d.name.substr(0, d.name.rfind('.')); };
  for (const Declaration& a : declared) {
    for (const Declaration& b : declared) {
      const Contract contract;
      if (stem(a) != stem(b) || given_of(a.conventions, contract) == given_of(b.conventions, contract))
        continue;
      throw Error(
          fmt::format("{} and {} decode together, but get their inputs in different ways; give them the same "
                      "decay, beta, "
                      "scale, l2norm and dtypes, or names that differ in more than the form",
                      a.name, b.name));
    }
  }
}

}  // namespace

Subject subject_rows(Ready ready, SubjectCall call) {
  Subject out;
  out.about = std::move(ready.about);
  require_alike(ready.kernels);
  std::ranges::stable_partition(ready.kernels, is_family);
  for (Declaration& d : ready.kernels) {
    const bool family = is_family(d);
    CallKernel row;
    row.name = d.name, row.system = d.system, row.form = d.form, row.device = d.device;
    row.contracts = d.contracts;
    row.limits = d.limits;
    row.strided = family || d.strided;
    row.packed = family || d.packed;
    row.taps = d.taps;
    require_conventions(d, family, !family && system_named(d.system).has(Property::slots));
    if (family) {
      if (!d.taps.empty())
        throw Error(
            fmt::format("the declaration of {}: {} has no taps: leave \"taps\" out", d.name, d.system));
      const std::vector<std::string> own = limits_of(d.conventions);
      row.limits.insert(row.limits.end(), own.begin(), own.end());
    }
    add_exact_widths(row.limits, system_named(d.system));
    // Far rows lie gigabytes apart, and a device would have to hold all of that.
    if (d.device_memory) row.limits.emplace_back("layout != far");
    row.run = [call, d, family](const KernelCall& of, const Contract& contract) {
      if (!family) {
        EdgeCall edge(of, contract, d);
        return call(edge, d.name);
      }
      const Arguments a = arguments_of(of);
      if (const std::string why = refusal_of(a, d.conventions); !why.empty())
        return Outcome{Outcome::Kind::unsupported, why};
      EdgeCall edge(a, contract, d);
      return call(edge, d.name);
    };
    out.rows.push_back(std::move(row));
    out.kernels.push_back(std::move(d));
  }
  return out;
}

Subject load_subject(const std::string& spec, const SubjectPatience& patience) {
  const auto line = std::make_shared<Line>(spec, patience);
  // The process ends here: the processes that make calls are forked off and have their own.
  Ready ready = Conversation(spec, patience, nullptr).ready;
  const bool on_device =
      std::ranges::all_of(ready.kernels, [](const Declaration& d) { return d.device != "cpu"; });
  // A device's kernel uses none of the judge's memory, so another call's tensors may change at the same time.
  line->limit(patience.processes > 0 ? patience.processes : on_device ? 1 : 0, on_device ? 2 : 1);
  try {
    return subject_rows(std::move(ready), [line](EdgeCall& call, const std::string& kernel) {
      return line->run(call, kernel);
    });
  } catch (const Error& error) {
    throw Error(fmt::format("--subject {}: {}", quote(spec), error.what()));
  }
}

}  // namespace samestate
