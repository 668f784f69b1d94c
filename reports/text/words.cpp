#include "reports/text/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

namespace samestate {
namespace {

constexpr std::array kWords = {
    Word{"system",
         "A set of equations with its sizes, forms, tensors and laws, such as `gated_delta_rule` or "
         "`softmax_attention` (`samestate list systems`)."},
    Word{"family",
         "The recurrent family: the systems with tensors q, k, v, g, beta and a state of dk x dv a "
         "head. They have *bounds* and a *twin* of their own."},
    Word{"operator",
         "A system outside the recurrent family. It is described by named tensors and bounded by its "
         "*running error*."},
    Word{"form",
         "A way to evaluate a system: recurrent, chunked, parallel, decode, packed and others "
         "(`samestate explain FORM`)."},
    Word{"sequence_parallel",
         "A *form* that divides the tokens of a call among *ranks*: each computes the map S -> M S + "
         "N of its tokens, and the maps are composed in order."},
    Word{"head_parallel",
         "A *form* that divides the value heads of a call among *ranks*. Heads do not meet, so the "
         "bits of a head are the same on any rank."},
    Word{"oracle",
         "The reference of a system, evaluated in float64 on the data of a case, with the *tolerance* "
         "that goes with it."},
    Word{"peer", "Somebody else's kernel that `samestate bench` times beside yours."},
    Word{"subject",
         "A kernel that samestate calls from outside: a Python function, a C library or a program, "
         "given by `--subject` ([subjects.md](subjects.md))."},
    Word{"plugin",
         "A shared library in C++ or CUDA that brings kernels and includes samestate's headers "
         "([plugin.md](../do/plugin.md))."},
    Word{"contract",
         "What a kernel promises to round, where, and to which format. *Bounds* and *twin* follow "
         "from it ([card.md](../understand/card.md))."},
    Word{"card",
         "The *points* of a *contract* with their values, as `samestate card` reads them from the "
         "outputs of a kernel. With `card:nearest` the distance to the *twin* is reported and does "
         "not fail the kernel."},
    Word{"point",
         "A place in a kernel where a value is rounded, or a setting of how sums and exponentials are "
         "computed: `beta_k`, `inverse`, `softmax_attention.weights` (`samestate list points`)."},
    Word{"stage",
         "A step of a layer between two *taps*, judged on its own from what the kernel itself gave "
         "it."},
    Word{"tap", "A tensor between two *stages* of a layer, which a kernel hands out under `taps=1`."},
    Word{"regime",
         "A named way to draw data: normal, slow decay, collinear keys, exact numbers and others "
         "(`samestate list regimes`)."},
    Word{"exact",
         "Said of regimes of integers and powers of two, in which no operation rounds. Outputs are "
         "compared bit for bit."},
    Word{"case",
         "A run on one line of text, `v1 SYSTEM key=value ...`, from which all of its data follow "
         "([case-line.md](case-line.md))."},
    Word{"seed", "The 64 bits from which every element of a case's data is drawn."},
    Word{"scale",
         "The factor of q k: dk^-1/2 rounded to fp32, in *exact* regimes the nearest power of two, or "
         "what the key says."},
    Word{"row",
         "The dv values of one token in one head of o, or of one key channel of a *state*; in the "
         "tensors of an *operator*, everything along the last extent. The error of a row is the "
         "2-norm of its errors, and the *gate* of that name compares it with its *tolerance*."},
    Word{"head",
         "A value head of one sequence. The *gate* of that name compares the RMS of the errors of all "
         "its rows with the predicted *B*, so it sees what is slightly wrong everywhere."},
    Word{"element",
         "One number of an output. The *gate* of that name compares single numbers, as for "
         "*operators*."},
    Word{"state",
         "The dk x dv matrix of a head that is carried from token to token and returned as "
         "`final_state`. The *gate* of that name compares its Frobenius norm."},
    Word{"piece",
         "A part of a run that is judged by itself, from the kernel's own *state*, because the bound "
         "of the whole run says nothing."},
    Word{"segment", "A *piece*, in the name of a gate: `segment row` is the gate row of a piece."},
    Word{"bound",
         "The error that a correct kernel may make on the data of a case under its *contract*: a "
         "worst case, or a statistical estimate ([bounds.md](../understand/theory/bounds.md))."},
    Word{"Bp", "The predicted error of a row before its output is rounded."},
    Word{"Bc",
         "The part of a row's error that comes from decays which round alike at every token. It adds "
         "up linearly, so *lambda* does not multiply it."},
    Word{"R", "The rounding of the output to its format: half an ulp of the values of a row."},
    Word{"B",
         "The predicted RMS error of a row, sqrt((Bp + Bc)^2 + R^2/3). The *tolerance* of a row is "
         "the smaller of lambda Bp + Bc + R and the worst case (*hard*)."},
    Word{"lambda",
         "The factor by which the error of a row may exceed the predicted *Bp*: 5, or 8.7 with "
         "repeated keys, and 1 if the bound is a worst case."},
    Word{"running error",
         "A rigorous worst-case error that is carried along with every number of a reference. It is "
         "the *bound* of *operators*."},
    Word{"tolerance",
         "What an error is compared with: a *bound* with its factor, and the rounding of the output."},
    Word{"ratio", "Error over *tolerance*. A ratio above 1 fails."},
    Word{"gate",
         "One comparison within a run (exact, range, row, head, state, hard, twin, element, law, "
         "memory, environment). `samestate gate` applies all of them to a plan of cases."},
    Word{"exact state",
         "A *gate* whose name ends in state is about the final *state*: exact state, range state, "
         "hard state."},
    Word{"range", "The *gate* of values that are not finite although the exact value fits the format."},
    Word{"hard",
         "The comparison with the worst case. A *ratio* above 1 proves that no rounding of the "
         "*contract* explains the error."},
    Word{"memory",
         "The *gate* of writes outside the outputs, changed inputs, and elements that were never "
         "written."},
    Word{"environment",
         "The *gate* of the floating-point environment: the kernel left another rounding mode, FTZ, "
         "DAZ, exception masks or x87 precision behind."},
    Word{"between devices",
         "The *gate* of `--each-device`: a kernel wrote other bits on another GPU "
         "([devices.md](../do/devices.md))."},
    Word{"twin",
         "A CPU run that rounds exactly where the *contract* says. Only the comparison with it shows "
         "a rounding that is not declared. Its *gates* are twin (a single row), twin median and twin "
         "RMS (all rows), and for *operators* twin element and twin share."},
    Word{"sampled",
         "The *gate* that compares an *operator* in 16 bits with 32 runs of its reference whose "
         "roundings are random: sampled tensor (RMS over rows), sampled row, element and column (the "
         "largest), sampled slope (an error along the output)."},
    Word{"worst at",
         "Where the error is the largest share of its *bound*: sequence, head, token and channel, "
         "counted from 0; in a *state* its row and column."},
    Word{"compared",
         "The rows of a run that were compared with a *bound*: all but those that belong to no "
         "sequence, or whose choice a rounding may turn."},
    Word{"held",
         "The heads or tokens of a large case that are compared with their *bound*; all others are "
         "compared with float64 ([judging.md](../understand/judging.md))."},
    Word{"policy",
         "How many heads and tokens are *held*, and how much work *twin* and random roundings may "
         "take ([policy.md](policy.md)). `repro` prints what a second look under the policy `deep` "
         "found as `deeper`."},
    Word{"vacuous",
         "The *verdict* of a comparison that could not have failed: a *bound* larger than the output, "
         "nothing compared, or everything zero. It is never a pass."},
    Word{"verdict",
         "The result of a case: *pass*, *fail*, *vacuous*, *unsupported*, *skipped*, *flaky*, *crash* "
         "or *timeout*."},
    Word{"exit code",
         "0: passed or done. 1: *fail*. 2: bad input, or a file that could not be written. 3: too "
         "little was judged, or the run was interrupted. 4: *flaky*. 5: *crash* or *timeout*. 77: "
         "nothing could run here."},
    Word{"pass", "The *verdict* of a case within every *bound*, where the bounds could have failed it."},
    Word{"fail",
         "The *verdict* of a case with a *ratio* above 1, a changed input or an unwritten output, "
         "each time it was run."},
    Word{"unsupported", "The *verdict* of a case that the kernel declares not to do."},
    Word{"skipped", "The *verdict* of a case whose device is not there."},
    Word{"flaky", "The *verdict* of a case that gave another verdict when it was run again."},
    Word{"crash", "The *verdict* of a case whose process died, or whose kernel threw."},
    Word{"timeout", "The *verdict* of a case without an answer within `--timeout`."},
    Word{"refused",
         "The *gate* of *unsupported* cases whose kernel threw before it launched anything, where the "
         "refused calls share a size or setting that its limits do not name."},
    Word{"devices lost", "The *gate* of cases that were *skipped* because the driver had lost every device."},
    Word{"likely cause",
         "What a failure says by itself: which gate failed, o or the state, beyond the worst case or "
         "within it. Failures are grouped by it."},
    Word{"looks like",
         "In an explanation, a known mistake that gives exactly the kernel's values, or the pattern "
         "of the wrong places."},
    Word{"stands out",
         "Said of a case whose *ratio* lies far above the median of the cases of its system, form, "
         "contract, law and gate. Reports list these first."},
    Word{"attained",
         "Said of a *bound* that every case of a group reaches, as for an output that is rounded "
         "once."},
    Word{"law",
         "A relation between runs of one kernel, such as splitting and resuming (`samestate list "
         "laws`)."},
    Word{"identity",
         "A relation between forms of the references, computed in float64 and in 50 digits "
         "(`samestate identities`)."},
    Word{"mutant",
         "A correct kernel into which one known bug was put. It is killed if the gate fails it "
         "([score.md](../understand/score.md))."},
    Word{"evidence",
         "A recorded run on a device, with the hash of the kernel's sources "
         "([evidence.md](../understand/evidence.md))."},
    Word{"golden", "Tensors that somebody else's code computed, and that the references have to reproduce."},
    Word{"record", "The verdict and numbers of one case, as a line of JSON Lines."},
    Word{"plan",
         "The cases of a gate: the corpus, edge cases, *pairs*, random cases and *ordinary calls* "
         "([judging.md](../understand/judging.md#where-cases-come-from))."},
    Word{"ordinary call",
         "A call that a server or a trainer makes: a public model times a kind of call, such as "
         "prefill or decoding."},
    Word{"factor",
         "Something that a case chooses, divided into levels that a kernel may treat differently: a "
         "contract, a value of a key, a band of a size."},
    Word{"boundary",
         "A size at which kernels change what they do, and its neighbours: powers of two, multiples "
         "of 8 to 256 and some primes."},
    Word{"pair",
         "Levels of two *factors* in one case, such as contract=bf16 with T=128-511. The summary says "
         "which share was judged."},
    Word{"triple", "The same as a *pair*, of three *factors*."},
    Word{"edge",
         "A place where kernels are known to break, such as the end of a chunk plus or minus 1, a "
         "decay of 0, or an empty sequence."},
    Word{"corpus", "Case lines that every gate runs first, because they failed once."},
    Word{"partition",
         "Where a chunked form cuts a sequence. Each partition has its own roundings and its own "
         "*bound*."},
    Word{"median", "Median row: the *ratio* below which half of the rows of a run lie."},
    Word{"shard",
         "Part I of N of a run, `--shard I/N`; `samestate merge` joins them "
         "([shards.md](../do/shards.md))."},
    Word{"rank",
         "One of the parts (`ranks=`) into which a call is divided by its *cuts*, or one of the "
         "processes that mpirun starts ([mpi.md](../do/mpi.md))."},
    Word{"cuts",
         "Where one *rank* of a call ends and the next begins: `cuts=even`, `cuts=drawn` (anywhere), "
         "or `cuts=heads` (parts of value heads)."},
    Word{"variant",
         "The calls that one compilation of a kernel serves, as its *subject* declares or the gate "
         "learns ([compiled-kernels.md](../do/compiled-kernels.md))."},
    Word{"tuned",
         "In a *record*, the configurations that the tuners of a *subject* chose; `retuned` is what a "
         "repeat under the other setting of `--autotune` gave."},
    Word{"spent",
         "In a *record*, where the seconds of a *subject*'s calls went: start, waiting, compile, "
         "tune, copy, kernel and passing (messages and tensors)."},
    Word{"ran_by", "In a *record*, the function to which the declared one handed its call on."},
    Word{"outputs", "In a *record*, hashes of what a cuda kernel wrote; equal hashes are equal bits."},
    Word{"numbers",
         "In the *record* of a captured call, its largest error and relative RMS, what a correct "
         "kernel stays within (`allowed_`) and what it should have (`expected_`) "
         "([capture.md](../do/capture.md))."},
    Word{"floor",
         "The least time that the bytes and operations of a call take ([bench.md](../do/bench.md)); "
         "in the code, what a folder may include ([ARCHITECTURE.md](../../ARCHITECTURE.md))."},
    Word{"baseline", "The *ratios* of an earlier run. A ratio that grew is a regression even below 1."},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string key_of(std::string_view name) {
  if (name == "λ") return "lambda";
  std::string key = lower(name);
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

}  // namespace

std::span<const Word> words() { return kWords; }

const Word* word_named(std::string_view name) {
  const std::string wanted = key_of(name);
  // Bp and bp, but B and b are found by what is typed first.
  for (const Word& row : kWords) {
    if (row.word == name) return &row;
  }
  for (const Word& row : kWords) {
    const std::string key = key_of(row.word);
    if (key == wanted || key + "s" == wanted ||
        (key.ends_with('y') && key.substr(0, key.size() - 1) + "ies" == wanted))
      return &row;
  }
  return nullptr;
}

std::vector<std::string_view> words_near(std::string_view name, std::size_t most) {
  const std::string wanted = key_of(name);
  std::vector<std::string_view> out;
  const auto add = [&](auto&& near) {
    for (const Word& row : kWords) {
      if (out.size() < most && near(row) && std::find(out.begin(), out.end(), row.word) == out.end())
        out.push_back(row.word);
    }
  };
  const std::string start = wanted.substr(0, std::max<std::size_t>(3, wanted.size() / 2));
  add([&](const Word& row) { return key_of(row.word).find(wanted) != std::string::npos; });
  add([&](const Word& row) { return key_of(row.word).starts_with(start); });
  add([&](const Word& row) { return lower(row.means).find(wanted) != std::string::npos; });
  return out;
}

std::string plain_text(std::string_view markdown) {
  std::string out;
  for (std::size_t i = 0; i < markdown.size(); ++i) {
    const char c = markdown[i];
    if (c == '*' || c == '`') continue;
    if (c == '[') {
      const std::size_t close = markdown.find("](", i);
      const std::size_t end = close == std::string_view::npos ? close : markdown.find(')', close);
      if (end != std::string_view::npos) {
        // The path of the page from the root; the table's links are relative to docs/lookup.
        const std::string target(markdown.substr(close + 2, end - close - 2));
        out += std::filesystem::path("docs/lookup/" + target).lexically_normal().generic_string();
        i = end;
        continue;
      }
    }
    out += c;
  }
  return out;
}

std::string words_markdown() {
  std::string out = R"(# Words

This page explains the words of the output and of these pages that are not common in the field.
`samestate explain WORD` prints a row, and explains every contract, regime, law, system, form and
key. Words in *italics* have a row of their own. The page is `samestate explain --markdown`.

| word | meaning |
|---|---|
)";
  for (const Word& row : kWords) out += fmt::format("| **{}** | {} |\n", row.word, row.means);
  return out;
}

}  // namespace samestate
