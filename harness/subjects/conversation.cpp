#include "harness/subjects/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fixtures/nesting.h"
#include "fixtures/quote.h"
#include "harness/processes/printed.h"
#include "harness/run/call_loop.h"
#include "harness/run/call_variant.h"
#include "harness/run/collect_spent.h"
#include "harness/run/float_environment.h"
#include "harness/subjects/answer.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

/// Says what the user can do about a Python that ended before it answered.
std::string remedy(const std::string& how, const std::string& last, const std::string& python) {
  constexpr std::string_view kNotFound = "exit code 127", kFailed = "exit code 1";
  if (how == kNotFound)
    return fmt::format("; {} is not to be found: set SAMESTATE_PYTHON to a Python", quote(python));
  if (how != kFailed || (!last.empty() && last.find("No module named") == std::string::npos)) return "";
  return fmt::format(
      "; is the package samestate installed for {}? `{} -m pip install samestate` installs it, and "
      "SAMESTATE_PYTHON names another Python",
      quote(python), python);
}

/// Returns the reason of an "error" that came instead of "ready"; empty for any other line.
std::string reason_of_no_start(const std::string& line) {
  if (!nested_within(line)) return "";
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("type", Json()) != "error") return "";
  const Json reason = json.value("reason", Json());
  const std::string text = reason.is_string() ? reason.get<std::string>() : "";
  if (text.empty()) return "it gave no reason";
  std::string said = quote(text, 2000);
  return said.substr(1, said.size() - 2);
}

}  // namespace

std::string variant_of_call(const std::string& kernel) {
  return kernel + '\n' + CallVariant::of_this_thread();
}

Conversation::Conversation(const std::string& spec, const SubjectPatience& patience, SaidOnce* traces,
                           int lanes)
    : patience_(patience), traces_(traces), memory_(lanes) {
  constexpr std::string_view kPython = "python:", kSocket = "socket:";
  const std::string option = "--subject " + quote(spec);
  const char* given = std::getenv("SAMESTATE_PYTHON");
  const std::string python = given != nullptr && *given != '\0' ? given : "python3";
  const bool of_python = spec.starts_with(kPython);
  if (spec.starts_with(kSocket)) {
    process_ = LineProcess::connect(spec.substr(kSocket.size()), option);
  } else if (of_python) {
    process_ = LineProcess::start(
        fmt::format("exec {} -m samestate.serve {}", python, shell_quoted(spec.substr(kPython.size()))),
        option, patience.log);
  } else {
    process_ = LineProcess::start(spec, option, patience.log);
  }
  const Json hello{
      {"type", "hello"}, {"protocol", 1}, {"samestate", SAMESTATE_VERSION}, {"memory", memory_.path()}};
  LineProcess::Said said = process_.send(hello.dump(), patience.start);
  // A subject that cannot start may have said why before it read anything.
  if (said.wrong.empty() || said.kind == LineProcess::Said::Kind::ended)
    said = process_.receive(patience.start, patience.stop);
  if (!said.wrong.empty()) {
    const bool late = said.kind == LineProcess::Said::Kind::late;
    const std::string how = process_.stop(late || said.kind == LineProcess::Said::Kind::stopped);
    // Its output says why, and a user who sees only the error would have to look for it.
    if (std::ranges::count(process_.printed().text(), '\n') > 1)
      fmt::print(own_stderr(), "{}", process_.printed().text());
    const std::string last = process_.printed().last_line();
    const std::string printed = last.empty() ? "" : fmt::format("; it last printed {}", quote(last, 400));
    if (late)
      throw Error(fmt::format("{}: not ready: {}, and it was killed; --start-timeout gives it longer{}",
                              option, said.wrong, printed));
    throw Error(fmt::format("{}: not ready: {}{}{}{}{}", option, said.wrong, how.empty() ? "" : ", with ",
                            how, printed, of_python ? remedy(how, last, python) : ""));
  }
  if (const std::string why = reason_of_no_start(said.line); !why.empty()) {
    (void)process_.stop();
    // Its output has more than the one line that says the same: a traceback.
    const std::string printed(process_.printed().text());
    if (std::ranges::count(printed, '\n') > 1) fmt::print(own_stderr(), "{}", printed);
    throw Error(fmt::format("{}: not ready: {}", option, why));
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

Conversation::~Conversation() {
  if (process_.open()) (void)process_.send(R"({"type":"bye"})", 1.0);
}

bool Conversation::has_compiled(const std::string& variant) const {
  const std::scoped_lock lock(known_);
  return compiled_.contains(variant);
}

std::unique_lock<std::timed_mutex> Conversation::turn() {
  std::unique_lock<std::timed_mutex> own(speaking_, std::try_to_lock);
  if (own) return own;
  // The call that it waits for has its own time limits.
  const ExcusedTime excused;
  while (!own.try_lock_for(std::chrono::milliseconds(200))) {
    if (patience_.stop && patience_.stop())
      throw Unavailable({Outcome::Kind::no_device, "interrupted while it waited for the subject"});
  }
  return own;
}

Outcome Conversation::run(EdgeCall& call, const std::string& kernel, Call& made) {
  Work work;
  const auto began = Clock::now();
  const auto note = [&] {
    const double all = std::chrono::duration<double>(Clock::now() - began).count();
    work.spent.passing = std::max(0.0, all - work.spent.seconds());
    CollectSpent::note(work.spent);
    for (const std::string& chosen : work.configurations) CollectSpent::note_tuned(work.tuned_by, chosen);
  };
  struct Leave {
    SharedMemory& memory;
    int lane;
    ~Leave() { memory.leave(lane); }
  } const leave{memory_, made.lane};
  try {
    Outcome outcome = called(call, kernel, made, work);
    note();
    return outcome;
  } catch (const EndedBefore&) {
    throw;
  } catch (...) {
    work.spent.lost = !good();
    note();
    throw;
  }
}

Outcome Conversation::called(EdgeCall& call, const std::string& kernel, Call& made, Work& work) {
  const std::vector<EdgePlace> places = memory_.place(call.regions(), made.lane);
  call.write(places);
  const auto waits = Clock::now();
  std::unique_lock<std::timed_mutex> own = turn();
  const double waited = std::chrono::duration<double>(Clock::now() - waits).count();
  if (!process_.open()) throw EndedBefore();
  const auto now_good = [&] {
    work.spent.waiting = waited;
    good_.store(process_.open());
  };
  try {
    Outcome outcome = answered(call, kernel, places, made, work);
    now_good();
    // The next call may run while the results of this one are read.
    own.unlock();
    if (outcome.kind == Outcome::Kind::ran) call.read(places);
    return outcome;
  } catch (...) {
    if (!own) {
      own.lock();
      stop_child();
    }
    now_good();
    throw;
  }
}

/// Returns the answer to a call whose tensors are written, up to the point where the outputs may be read.
Outcome Conversation::answered(EdgeCall& call, const std::string& kernel,
                               const std::vector<EdgePlace>& places, Call& made, Work& work) {
  require_object();
  const std::int64_t id = made.number = ++id_;
  // A call that compiles has the time limit of a start, whatever the case's limit is.
  const std::string variant = variant_of_call(kernel);
  const bool first = !has_compiled(variant);
  const double patience = first ? patience_.start : patience_.call;
  std::optional<ExcusedTime> excused;
  if (first) excused.emplace();
  if (process_.has_more()) lose("said something that was not asked for: it must answer a call once");
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
    // A choice of configuration that did not run is withdrawn by the next message.
    if (!answer.configurations.empty())
      work.tuned_by = answer.tuned_by, work.configurations = answer.configurations;
    if (answer.kind != SubjectAnswer::Kind::busy) work.spent = answer.spent;
    switch (answer.kind) {
      case SubjectAnswer::Kind::busy:
        if (Clock::now() > last) lose(fmt::format("was busy for {:g} s", kBusyTimes * patience), true, first);
        said = {};
        continue;
      case SubjectAnswer::Kind::ran: {
        const std::scoped_lock lock(known_);
        compiled_.insert(variant);
      }
        require_object();
        if (const std::string what = memory_.touched(call.regions(), made.lane); !what.empty()) {
          stop_child();
          throw Trespass("the kernel " + what);
        }
        return {Outcome::Kind::ran, answer.function};
      case SubjectAnswer::Kind::unsupported:
        return {Outcome::Kind::unsupported, answer.reason};
      case SubjectAnswer::Kind::no_device:
        return {Outcome::Kind::no_device, answer.reason};
      case SubjectAnswer::Kind::error:
        break;
    }
    if (answer.trespass || answer.environment) {
      const std::string what = quote(answer.reason, 400);
      const std::string said = "the kernel " + what.substr(1, what.size() - 2);
      if (answer.environment) throw ChangedEnvironment(said);
      throw Trespass(said);
    }
    tell(answer.trace);
    made.thrown = answer.where.empty() ? answer.reason : answer.where;
    const std::string what = answer.reason.empty() ? "it gave no reason" : quote(answer.reason, 400);
    if (!answer.fatal)
      throw ThrewElsewhere(answer.where.empty() ? what : fmt::format("{} ({})", what, answer.where),
                           answer.refusal);
    process_.stop(true);
    throw std::runtime_error(what);
  }
}

void Conversation::stop_child() {
  if (process_.is_child()) process_.stop(true);
}

void Conversation::require_object() {
  const std::string what = memory_.changed();
  if (what.empty()) return;
  process_.stop(true);
  throw Trespass("the kernel's process " + what);
}

void Conversation::tell(const std::string& trace) {
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

void Conversation::lose(const std::string& why, bool late, bool first) {
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

}  // namespace samestate
