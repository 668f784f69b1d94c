#include "harness/script/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/script/script_parts.h"
#include "harness/systems/saved_run.h"
#include "reference/error.h"

namespace samestate {
namespace script_detail {

bool breaks(double error, float limit) {
  if (!std::isfinite(error)) return true;
  return error != 0.0 && error > static_cast<double>(limit);
}

std::vector<std::int64_t> compared_of(std::int64_t count, std::int64_t worst) {
  constexpr std::int64_t kMost = 16;
  std::vector<std::int64_t> out{std::min(worst, std::max<std::int64_t>(count - 1, 0))};
  for (std::int64_t i = 0; i < std::min(count, kMost); ++i) {
    const std::int64_t one = count <= kMost ? i : i * count / kMost;
    if (one != out.front()) out.push_back(one);
  }
  return out;
}

}  // namespace script_detail

namespace {

using script_detail::Parts;

constexpr const char* kHead = R"py(#!/usr/bin/env python3
"""@TITLE@

    @LINE@

is the case of samestate, which checks kernels of linear attention against float64 references; `@REPEAT@`
repeats it there. Here samestate is not needed: this file has the inputs, bit for bit, and needs @NEEDS@.

    python3 FILE.py@USAGE@        exit code 0: within the limits, 1: beyond one

@SOURCE@

The limits: @LIMITS@.
"""
import base64
@IMPORTS@
import numpy as np

@CONSTANTS@)py";

constexpr const char* kTools = R"py(
def array(kind, shape, text):
    """An array of base64, little-endian (bf16: the upper 16 bits of fp32), or one number that fills it."""
    if kind == "fill":
        return np.full(shape, float(text), np.float32 if float(np.float32(text)) == float(text) else float)
    bits = np.frombuffer(base64.b64decode(text), {"bf16": "<u2", "fp16": "<f2", "fp32": "<f4", "fp64": "<f8"}[kind])
    if kind == "bf16":
        bits = (bits.astype("<u4") << 16).view("<f4")
    return bits.astype(float if kind == "fp64" else np.float32).reshape(shape)


SEEN, WORST = {}, {}  # of the table: sizes by output; by output and measure the error that is the most of its limit


def look(output, actual, wanted):
    """Takes note of the sizes of an output's errors."""
    difference = np.abs(actual - wanted)
    largest, squares, size = SEEN.get(output, (0.0, 0.0, 0.0))
    SEEN[output] = (max(largest, np.where(np.isnan(difference), np.inf, difference).max(initial=0.0)),
                    squares + np.sum(difference ** 2), size + np.sum(np.square(wanted)))


def hold(output, measure, errors, limits, place):
    """Holds errors against limits; an infinite limit says nothing, but excuses no value that is no number."""
    errors = np.ravel(errors)
    errors = np.where(np.isnan(errors), np.inf, errors)
    limits = np.ravel(limits).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors == 0, 0, errors / limits)
    ratios[np.isinf(errors)] = np.inf
    if not ratios.size:
        return
    at = int(np.argmax(ratios))
    if (output, measure) not in WORST or ratios[at] > WORST[output, measure][0]:
        WORST[output, measure] = ratios[at], errors[at], limits[at], place(at)

)py";

constexpr const char* kTable = R"py(
    print(f"{'output':<12} {'max abs error':>13} {'relative RMS':>12}   "
          f"{'held by':<22} {'error':>10} {'limit':>10} {'ratio':>9}  worst at")
    for (output, measure), (ratio, error, limit, place) in WORST.items():
        largest, squares, size = SEEN[output]
        rms = np.sqrt(squares / size) if size else float("nan")
        print(f"{output:<12} {largest:>13.4g} {rms:>12.4g}   {measure:<22} {error:>10.4g} {limit:>10.4g} {ratio:>9.4g}  {place}")
    beyond = [f"{output} ({measure})" for (output, measure), row in WORST.items() if not row[0] <= 1]@EDITED@
    print("FAIL: beyond the limit: " + ", ".join(beyond) if beyond else "pass: every error is within its limit")
    return 1 if beyond else 0

)py";

/// Writing to an input counts as a failure too.
constexpr const char* kEdited = R"py(
    beyond += [f"the kernel wrote to its input {name}" for name in sorted(EDITED)])py";

constexpr const char* kTail = R"py(
# -- the inputs, the limits@RECORDED@

DATA = {
@DATA@}

if __name__ == "__main__":
    sys.exit(main())
)py";

/// Returns the text for a docstring: without quotes that would end it or escapes that would change it.
std::string in_docstring(std::string text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += '\\';
    out += c == '"' ? '\'' : c;
  }
  return out;
}

/// Returns the same text broken into lines at spaces.
std::string wrapped(const std::string& text, std::size_t columns) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t length = end - begin;
    if (column > 0 && column + 1 + length > columns) {
      out += '\n', column = 0;
    } else if (column > 0) {
      out += ' ', ++column;
    }
    out += text.substr(begin, length);
    column += length;
    begin = end + 1;
  }
  return out;
}

constexpr std::size_t kProseColumns = 118;

/// Says which parts of the line a script does not repeat.
std::string left_out(const Resolved& r, bool called) {
  std::string out;
  const auto add = [&](const std::string& what) { out += (out.empty() ? "" : "; ") + what; };
  if (!called) return out;
  if (r.layout != Layout::dense) add("its tensors have gaps between them (layout), which are dense here");
  if (r.c.lead + r.c.slack > 0)
    add("tokens that belong to no sequence (unowned) stand around those that are here");
  if (r.c.repeat) add("its calls are made again with other settings in between (repeat=1)");
  return out;
}

/// Phrases in the reason of a failure: the first for one that the memory guards found and that a script can
/// find by checking its inputs; the second for a crash that ended the process in which the kernel ran.
constexpr std::string_view kItsInput = "its input ", kItsProcess = "the subject's process";

std::string source_of(const Resolved& r, const Record& record, const ScriptWords& words, const Parts& parts) {
  const bool called = !words.call.empty();
  std::string out = called ? fmt::format("It calls the kernel, evaluates {} in float64, and compares.",
                                         r.law != nullptr ? "nothing" : "the equation")
                           : fmt::format(
                                 "{} cannot be called from Python: its outputs are embedded as recorded on "
                                 "{}, and compared with {}.",
                                 record.kernel, words.recorded,
                                 r.law != nullptr ? "each other" : "the equation in float64");
  if (called && r.law != nullptr)
    out = "It calls the kernel on the data of two runs that have to agree, and compares them.";
  if (!parts.cut.empty()) out += " Cut out is " + parts.cut + ".";
  if (const std::string left = left_out(r, called); !left.empty())
    out += fmt::format(
        " Of the line this is not repeated: {}. Where the script passes although the line fails, that is "
        "why.",
        left);
  return out;
}

std::string whole_script(const Resolved& r, const Record& record, const ScriptWords& words,
                         const Parts& parts) {
  const bool called = !words.call.empty();
  const bool ended =
      record.judgement.verdict == Verdict::crash || record.judgement.verdict == Verdict::timeout;
  const std::string title = ended ? fmt::format("{} does not return ({}): {}", record.kernel,
                                                name_of(record.judgement.verdict), words.sentence)
                            : words.sentence.empty()
                                ? fmt::format("{} passes this case.", record.kernel)
                                : fmt::format("{} gives wrong values: {}", record.kernel, words.sentence);
  const auto prose = [&](const std::string& text) { return wrapped(in_docstring(text), kProseColumns); };
  std::string out = filled_in(
      kHead,
      {{"TITLE", prose(title)},
       {"LINE", in_docstring(record.line)},
       {"REPEAT", in_docstring(words.repeat)},
       {"NEEDS", called ? words.needs : "numpy alone"},
       {"USAGE", called ? words.usage : ""},
       {"SOURCE", prose(source_of(r, record, words, parts))},
       {"LIMITS", wrapped(in_docstring(parts.limits), kProseColumns)},
       {"IMPORTS", called ? "import importlib\nimport os\nimport sys\nimport types\n" : "import sys\n"},
       {"CONSTANTS", parts.constants}});
  if (called) out += "EDITED = set()  # inputs that a call wrote to\n";
  out += "\n" + std::string(kTools);
  if (!parts.reference.empty()) out += "\n" + parts.reference + "\n";
  if (called) out += "\n" + words.call + "\n";
  if (!parts.results.empty()) out += parts.results + "\n";
  out += "\ndef main():\n" + parts.main;
  out += filled_in(kTable, {{"EDITED", called ? kEdited : ""}});
  out += filled_in(kTail,
                   {{"RECORDED", called ? "" : ", the outputs that the kernel gave"}, {"DATA", parts.data}});
  return out;
}

}  // namespace

Parts RecurrentSystem::script_parts(const Resolved& r, const Record& record, const Trace& trace,
                                    const ScriptWords& words, bool alone) const {
  return r.law != nullptr ? script_detail::law_parts(*this, r, trace, words)
                          : script_detail::family_parts(*this, r, record, trace, words, alone);
}

Parts TensorSystem::script_parts(const Resolved& r, const Record& record, const Trace& trace,
                                 const ScriptWords& words, bool alone) const {
  if (is_end_to_end(r))
    throw Error(fmt::format(
        "--script: {} gives sums over all sequences of a call, and a script compares sequences", r.c.system));
  return r.law != nullptr ? script_detail::law_parts(*this, r, trace, words)
                          : script_detail::tensor_parts(*this, r, record, trace, words, alone);
}

Trace RecurrentSystem::trace_before_run(const Resolved& r, const KernelRow& kernel) const {
  Trace trace;
  trace.inputs = inputs(r);
  if (kernel.given) trace.given = kernel.given(r.promised);
  return trace;
}

Trace TensorSystem::trace_before_run(const Resolved& r, const KernelRow& kernel) const {
  Trace trace = unwritten_run(r, kernel.form);
  (void)judge_run(r, trace, &trace.oracles);
  trace.outputs.clear();
  return trace;
}

Trace trace_without_run(const Resolved& r, const KernelTable& table) {
  if (r.law != nullptr)
    throw Error(fmt::format("--script: the runs of law={} are not known without running them", r.c.law));
  return r.system->trace_before_run(r, *table.choose(r).named);
}

std::string script_of(const Record& record, const Trace& trace, const ScriptWords& words) {
  const Resolved r(parse_case(record.line));
  const Judgement& j = record.judgement;
  if (j.verdict == Verdict::vacuous || j.verdict == Verdict::skipped || j.verdict == Verdict::unsupported)
    throw Error(fmt::format("--script: the case is {}, so that a script would compare nothing: {}",
                            name_of(j.verdict), j.reason));
  const bool ran = r.law != nullptr || !trace.outputs.empty();
  if (!ran && words.call.empty())
    throw Error(fmt::format(
        "--script: the kernel gave no outputs ({}: {}), and nothing that Python can call; give the issue "
        "the case line and `samestate repro`",
        name_of(j.verdict), j.reason));
  // A script has no guards around memory and checks only the inputs; a kernel that was ended by a signal ends
  // the script only if the memory happens to be laid out in the same way.
  const bool by_guard =
      j.gate == "environment" || (j.gate == "memory" && j.reason.find(kItsInput) == j.reason.npos);
  const bool ended = j.verdict == Verdict::crash && j.reason.find(kItsProcess) != j.reason.npos;
  if (!ran && (by_guard || ended))
    throw Error(fmt::format(
        "--script: the verdict is {} by {} ({}), which a call without the judge's guards need not show; "
        "give the issue the case line and `samestate repro`",
        name_of(j.verdict), by_guard ? "gate " + j.gate : "the end of the kernel's process", j.reason));
  const auto check = [&](const Parts& parts) {
    if (!parts.judged)
      throw Error(
          "--script: no limit is known of these outputs (the bound of the whole run says nothing); a shorter "
          "case has one: "
          "`samestate repro --shrink --script`");
    if (ran && parts.fails != (j.verdict == Verdict::fail))
      throw Error(fmt::format(
          "--script: the verdict is {} by gate {} ({}), which no limit on these outputs shows: nothing that "
          "another program could repeat; `samestate repro` explains it",
          name_of(j.verdict), j.gate, j.reason.empty() ? "no reason" : j.reason));
  };
  Parts parts = r.system->script_parts(r, record, trace, words, false);
  check(parts);
  std::string text = whole_script(r, record, words, parts);
  if (text.size() > kLongestScript && words.call.empty() && r.law == nullptr) {
    parts = r.system->script_parts(r, record, trace, words, true);
    check(parts);
    text = whole_script(r, record, words, parts);
  }
  if (text.size() > kLongestScript)
    throw Error(fmt::format(
        "--script: {} bytes with the data of this case, at most {} are written; `samestate repro --shrink "
        "--script` makes the case smaller first",
        text.size(), kLongestScript));
  return text;
}

}  // namespace samestate
