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
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "fixtures/quote.h"
#include "harness/cases/system.h"
#include "harness/processes/line_process.h"
#include "harness/run/call_loop.h"
#include "harness/run/call_variant.h"
#include "harness/run/collect_spent.h"
#include "harness/subjects/answer.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/said_once.h"
#include "harness/subjects/shared_memory.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// Names the variant that a call of this thread needs.
std::string variant_of_call(const std::string& kernel) {
  return kernel + '\n' + CallVariant::of_this_thread();
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One conversation.
class Conversation {
 public:
  /// `traces`: of kernels that threw, which are said once; null: nobody calls one.
  Conversation(const std::string& spec, const SubjectPatience& patience, SaidOnce* traces)
      : patience_(patience), traces_(traces) {
    constexpr std::string_view kPython = "python:", kSocket = "socket:";
    const std::string option = "--subject " + quote(spec);
    if (spec.starts_with(kSocket)) {
      process_ = LineProcess::connect(spec.substr(kSocket.size()), option);
    } else if (spec.starts_with(kPython)) {
      const char* python = std::getenv("SAMESTATE_PYTHON");
      process_ = LineProcess::start(fmt::format("exec {} -m samestate.serve {}",
                                                python != nullptr && *python != '\0' ? python : "python3",
                                                shell_quoted(spec.substr(kPython.size()))),
                                    option, patience.log);
    } else {
      process_ = LineProcess::start(spec, option, patience.log);
    }
    const Json hello{
        {"type", "hello"}, {"protocol", 1}, {"samestate", SAMESTATE_VERSION}, {"memory", memory_.path()}};
    LineProcess::Said said = process_.send(hello.dump(), patience.start);
    if (said.wrong.empty()) said = process_.receive(patience.start, patience.stop);
    if (!said.wrong.empty()) {
      const bool late = said.kind == LineProcess::Said::Kind::late;
      const std::string how = process_.stop(late || said.kind == LineProcess::Said::Kind::stopped);
      // Its output says why, and a person who only sees the error would have to look for it.
      fmt::print(own_stderr(), "{}", process_.printed().text());
      if (late)
        throw Error(fmt::format("{}: not ready: {}, and it was killed; --start-timeout gives it longer",
                                option, said.wrong));
      throw Error(
          fmt::format("{}: not ready: {}{}{}", option, said.wrong, how.empty() ? "" : ", with ", how));
    }
    try {
      ready = parse_ready(said.line);
      for (const Declaration& d : ready.kernels) {
        if (d.device_memory)
          throw Error(
              fmt::format("the declaration of {}: \"memory\" is cuda: a process is given memory of the "
                          "host; a library in C, samestate/subject.h, gets the device's",
                          quote(d.name, 60)));
      }
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", option, error.what()));
    }
  }

  ~Conversation() {
    if (process_.open()) (void)process_.send(R"({"type":"bye"})", 1.0);
  }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// False once nobody knows what it would say next.
  [[nodiscard]] bool good() const { return process_.open(); }

  /// Throws Trespass, and runtime_error where it died or spoke nonsense, which is a crash of the case.
  Outcome run(EdgeCall& call, const std::string& kernel) {
    spent_ = {};
    configurations_.clear();
    const auto began = Clock::now();
    const auto note = [&] {
      const double all = std::chrono::duration<double>(Clock::now() - began).count();
      spent_.passing = std::max(0.0, all - spent_.seconds());
      CollectSpent::note(spent_);
      for (const std::string& chosen : configurations_) CollectSpent::note_tuned(tuned_by_, chosen);
    };
    try {
      Outcome outcome = answered(call, kernel);
      note();
      return outcome;
    } catch (...) {
      spent_.lost = !good();
      note();
      throw;
    }
  }

  /// Returns true if it has made a call of that kind.
  [[nodiscard]] bool has_compiled(const std::string& variant) const { return compiled_.contains(variant); }

  Ready ready;

 private:
  Outcome answered(EdgeCall& call, const std::string& kernel) {
    const std::vector<EdgePlace> places = place_in_memory(call);
    call.write(places);
    const std::int64_t id = ++id_;
    // A call that compiles has the time of a start, whatever a case's is.
    const std::string variant = variant_of_call(kernel);
    const bool first = !compiled_.contains(variant);
    const double patience = first ? patience_.start : patience_.call;
    std::optional<ExcusedTime> excused;
    if (first) excused.emplace();
    if (process_.has_more()) lose("said something that it was not asked: it answers a call once");
    const auto last = Clock::now() + seconds(kBusyTimes * patience);
    LineProcess::Said said = process_.send(call.message(id, kernel, memory_.size(), places), patience);
    while (true) {
      if (said.wrong.empty()) said = process_.receive(patience);
      if (!said.wrong.empty()) lose(said.wrong, said.kind == LineProcess::Said::Kind::late, first);
      SubjectAnswer answer;
      try {
        answer = parse_answer(said.line, id);
      } catch (const Error& error) {
        lose(error.what());
      }
      // A choice that did not run is taken back by the next message.
      if (!answer.configurations.empty())
        tuned_by_ = answer.tuned_by, configurations_ = answer.configurations;
      if (answer.kind != SubjectAnswer::Kind::busy) spent_ = answer.spent;
      switch (answer.kind) {
        case SubjectAnswer::Kind::busy:
          if (Clock::now() > last)
            lose(fmt::format("was busy for {:g} s", kBusyTimes * patience), true, first);
          said = {};
          continue;
        case SubjectAnswer::Kind::ran:
          compiled_.insert(variant);
          require_object();
          if (const std::string what = memory_.touched(call.regions()); !what.empty())
            throw Trespass("the kernel " + what);
          call.read(places);
          return {Outcome::Kind::ran, answer.function};
        case SubjectAnswer::Kind::unsupported:
          return {Outcome::Kind::unsupported, answer.reason};
        case SubjectAnswer::Kind::no_device:
          return {Outcome::Kind::no_device, answer.reason};
        case SubjectAnswer::Kind::error:
          break;
      }
      if (answer.trespass) {
        const std::string what = quote(answer.reason, 400);
        throw Trespass("the kernel " + what.substr(1, what.size() - 2));
      }
      tell(answer.trace);
      const std::string what = answer.reason.empty() ? "it gave no reason" : quote(answer.reason, 400);
      if (!answer.fatal)
        throw ThrewElsewhere(answer.where.empty() ? what : fmt::format("{} ({})", what, answer.where),
                             answer.refusal);
      process_.stop(true);
      throw std::runtime_error(what);
    }
  }

  /// A subject that changed the object itself is one that nobody can go on with.
  void require_object() {
    const std::string what = memory_.changed();
    if (what.empty()) return;
    process_.stop(true);
    throw Trespass("the kernel's process " + what);
  }

  std::vector<EdgePlace> place_in_memory(const EdgeCall& call) {
    require_object();
    return memory_.place(call.regions());
  }

  static Clock::duration seconds(double s) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }

  /// A gate calls a kernel that throws thousands of times, and a case that threw again, alone.
  void tell(const std::string& trace) {
    if (trace.empty() || traces_ == nullptr) return;
    switch (traces_->say(trace)) {
      case SaidOnce::Answer::new_text:
        fmt::print(own_stderr(), "{}\n", trace);
        break;
      case SaidOnce::Answer::last_new:
        fmt::print(own_stderr(),
                   "{}\nsamestate: other traces are left out; `samestate repro` of a line shows its own\n",
                   trace);
        break;
      case SaidOnce::Answer::nothing:
        break;
    }
  }

  [[noreturn]] void lose(const std::string& why, bool late = false, bool first = false) {
    const std::string how = process_.stop(late);
    const std::string last = process_.printed().last_line();
    const std::string printed = last.empty() ? "" : fmt::format("; it last printed {}", quote(last, 400));
    if (late)
      throw std::runtime_error(fmt::format("the subject's process: {}, and it was killed; {}{}", why,
                                           first ? "--start-timeout gives the first call of a variant longer"
                                                 : "SAMESTATE_CALL_TIMEOUT gives a call longer",
                                           printed));
    throw std::runtime_error(
        fmt::format("the subject's process: {}{}{}{}", why, how.empty() ? "" : ", with ", how, printed));
  }

  SubjectPatience patience_;
  SaidOnce* traces_;
  SharedMemory memory_;
  LineProcess process_;
  std::int64_t id_ = 0;
  Spent spent_;                              ///< of the call under way
  std::string tuned_by_;                     ///< the setting of its tuners
  std::vector<std::string> configurations_;  ///< that they chose for it
  std::set<std::string> compiled_;           ///< kernels and what of them a call has compiled
};

/// The conversations of a process: each process that calls has its own, and each of its threads while it calls. Where they are
/// limited, a thread that calls waits for one, and other threads judge meanwhile what came of their calls.
class Line {
  static constexpr int kMostFailures = 3;

 public:
  Line(std::string spec, const SubjectPatience& patience) : spec_(std::move(spec)), patience_(patience) {
    // Kept while the process lives, as the rows are.
    void* shared =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Error(fmt::format("no memory to share ({})", std::strerror(errno)));
    failures_ = new (shared) std::atomic<int>(0);
  }

  Outcome run(EdgeCall& call, const std::string& kernel) {
    std::unique_ptr<Conversation> own = take(kernel);
    const auto give_back = [&] {
      {
        const std::scoped_lock lock(mutex_);
        compiling_.erase(variant_of_call(kernel));
        if (own->good())
          idle_.push_back(std::move(own));
        else
          --open_;
      }
      free_.notify_all();
    };
    try {
      Outcome outcome = own->run(call, kernel);
      give_back();
      return outcome;
    } catch (...) {
      give_back();
      throw;
    }
  }

  /// Before it is first called.
  void limit(int most) { most_ = most; }

 private:
  /// One that nobody talks to, which has compiled the call where there is such; null: one may be started.
  std::unique_ptr<Conversation> idle_one(const std::string& kernel) {
    const std::string variant = variant_of_call(kernel);
    std::unique_lock lock(mutex_);
    if (process_ != ::getpid()) {
      // Of the parent: its ends are not this process's to close.
      for (std::unique_ptr<Conversation>& other : idle_) (void)other.release();
      idle_.clear();
      compiling_.clear();
      open_ = 0;
      process_ = ::getpid();
    }
    const auto compiled = [&](const auto& one) { return one->has_compiled(variant); };
    // A variant that one of several is compiling is compiled once, and the others load it from the cache of its package.
    const auto free = [&] {
      return most_ <= 0 || std::ranges::any_of(idle_, compiled) ||
             ((!idle_.empty() || open_ < most_) && !compiling_.contains(variant));
    };
    if (!free()) {
      const ExcusedTime excused;
      const auto began = Clock::now();
      // The process that it waits for keeps its own limits of time.
      while (!free_.wait_for(lock, std::chrono::milliseconds(200), free)) {
        if (patience_.stop && patience_.stop())
          throw Unavailable({Outcome::Kind::no_device, "interrupted while it waited for the subject"});
      }
      CollectSpent::note({.waiting = seconds_since(began)});
    }
    auto chosen = std::ranges::find_if(idle_, compiled);
    if (chosen == idle_.end()) compiling_.insert(variant);
    if (idle_.empty()) {
      ++open_;
      return nullptr;
    }
    if (chosen == idle_.end()) chosen = std::prev(idle_.end());
    std::unique_ptr<Conversation> own = std::move(*chosen);
    idle_.erase(chosen);
    return own;
  }

  std::unique_ptr<Conversation> take(const std::string& kernel) {
    if (std::unique_ptr<Conversation> own = idle_one(kernel)) return own;
    const auto not_started = [&] {
      {
        const std::scoped_lock lock(mutex_);
        compiling_.erase(variant_of_call(kernel));
        --open_;
      }
      free_.notify_all();
    };
    if (const int times = failures_->load(); times >= kMostFailures) {
      not_started();
      throw std::runtime_error(
          fmt::format("--subject {}: it failed to start {} times running, and is not started again",
                      quote(spec_), times));
    }
    try {
      const ExcusedTime excused;
      const auto began = Clock::now();
      std::unique_ptr<Conversation> own = std::make_unique<Conversation>(spec_, patience_, &traces_);
      CollectSpent::note({.start = seconds_since(began)});
      failures_->store(0);
      return own;
    } catch (const Error& error) {
      not_started();
      if (patience_.stop && patience_.stop())
        throw Unavailable({Outcome::Kind::no_device, "interrupted while the subject started"});
      failures_->fetch_add(1);
      // A case's, here.
      throw std::runtime_error(error.what());
    }
  }

  std::string spec_;
  SubjectPatience patience_;
  SaidOnce traces_;
  std::mutex mutex_;
  std::condition_variable free_;
  pid_t process_ = ::getpid();
  std::vector<std::unique_ptr<Conversation>> idle_;
  std::set<std::string> compiling_;  ///< variants whose first call is under way
  int open_ = 0;                     ///< idle ones, and those that are talked to
  int most_ = 0;                     ///< 0: no limit
  std::atomic<int>* failures_ =
      nullptr;  ///< starts running that failed, in all processes that were forked off
};

bool is_family(const std::string& system) { return system_named(system).kernel_rows == kFamilyRows; }

/// Whether a request's state lies in a slot of a pool.
bool has_pool(const std::string& system) {
  return std::ranges::any_of(system_named(system).laws,
                             [](const CaseLaw& law) { return law.name == "pool"; });
}

/// The rows of one name but for the form serve one decoded case, whose oracle reads its inputs in one way.
void require_alike(const std::vector<Declaration>& declared) {
  const auto stem = [](const Declaration& d) { return d.name.substr(0, d.name.rfind('.')); };
  for (const Declaration& a : declared) {
    for (const Declaration& b : declared) {
      const Contract contract;
      if (stem(a) != stem(b) || given_of(a.conventions, contract) == given_of(b.conventions, contract))
        continue;
      throw Error(fmt::format(
          "{} and {} decode together, and get their inputs in different ways: the same decay, beta, "
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
  std::vector<Declaration> of_tensors;
  for (Declaration& d : ready.kernels) {
    std::vector<std::string> limits = d.limits;
    const bool family = is_family(d.system);
    require_conventions(d, family, !family && has_pool(d.system));
    if (family) {
      const std::vector<std::string> own = limits_of(d.conventions);
      limits.insert(limits.end(), own.begin(), own.end());
    }
    // What lies between far rows is gigabytes, which a device would have to hold.
    if (d.device_memory) limits.emplace_back("layout != far");
    const auto row_of = [&](auto row) {
      row.name = d.name, row.system = d.system, row.form = d.form, row.device = d.device;
      row.contracts = d.contracts;
      row.limits = limits;
      return row;
    };
    if (family) {
      if (!d.taps.empty())
        throw Error(
            fmt::format("the declaration of {}: {} has no taps: leave \"taps\" out", d.name, d.system));
      Kernel row = row_of(Kernel());
      row.run = [call, d](const Arguments& a, const Contract& contract) {
        if (const std::string why = refusal_of(a, d.conventions); !why.empty())
          return Outcome{Outcome::Kind::unsupported, why};
        EdgeCall edge(a, contract, d);
        return call(edge, d.name);
      };
      out.rows.kernels.push_back(std::move(row));
      out.kernels.push_back(std::move(d));
    } else {
      OperatorKernel row = row_of(OperatorKernel());
      row.strided = d.strided;
      row.taps = d.taps;
      row.run = [call, d](const OperatorArguments& a, const Contract& contract) {
        EdgeCall edge(a, contract, d);
        return call(edge, d.name);
      };
      out.rows.operators.push_back(std::move(row));
      of_tensors.push_back(std::move(d));
    }
  }
  std::move(of_tensors.begin(), of_tensors.end(), std::back_inserter(out.kernels));
  return out;
}

Subject load_subject(const std::string& spec, const SubjectPatience& patience) {
  const auto line = std::make_shared<Line>(spec, patience);
  // Ended here: the processes that call are forked off, and have their own.
  Ready ready = Conversation(spec, patience, nullptr).ready;
  const bool on_device =
      std::ranges::all_of(ready.kernels, [](const Declaration& d) { return d.device != "cpu"; });
  line->limit(patience.processes > 0 ? patience.processes : on_device ? 1 : 0);
  try {
    return subject_rows(std::move(ready), [line](EdgeCall& call, const std::string& kernel) {
      return line->run(call, kernel);
    });
  } catch (const Error& error) {
    throw Error(fmt::format("--subject {}: {}", quote(spec), error.what()));
  }
}

}  // namespace samestate
