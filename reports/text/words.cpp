#include "reports/text/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace samestate {
namespace {

constexpr std::array kWords = {
    Word{"system",
         "one set of equations with its keys, forms, tensors, oracle and laws: a row of `oracles/systems/`. "
         "`gated_delta_rule`, `retention`, `dendritic_attention` …"},
    Word{"family",
         "the four systems whose state is a dk x dv matrix a head and whose tensors are q, k, v, g, beta: "
         "they have *bounds* and a *twin* of their own. \"The recurrent family\""},
    Word{"operator",
         "a system outside the family, described by named tensors and bounded by the *running error*"},
    Word{"form",
         "one way of evaluating a system: recurrent, chunked, parallel, decode, packed …; "
         "`samestate explain FORM` says what each is"},
    Word{
        "sequence_parallel",
        "the *form* that divides the tokens of a call among *ranks*: each makes the map S ↦ M S + N of its "
        "tokens alone, the maps are composed in order, the outputs follow; the *bound* adds what composition "
        "rounds ([systems.md](systems.md))"},
    Word{"head_parallel",
         "the *form* that divides the value heads of a call among *ranks*, each with a copy of the key head "
         "that serves it; heads do not meet, so that a head's bits are the same on any rank "
         "([systems.md](systems.md))"},
    Word{"reference",
         "the equations as a header of `reference/`, templated on the scalar, as plain as they are printed"},
    Word{"oracle",
         "the reference evaluated in float64 on a case's data, and the tolerance that goes with it"},
    Word{"kernel",
         "code under test: one system and some forms on one device, with the contracts that it keeps"},
    Word{"peer", "somebody else's kernel that `bench` times beside ours"},
    Word{"subject",
         "1. a kernel of yours behind `--subject`: a C library, a program or a function of Python "
         "([subjects.md](subjects.md)). 2. of a *law*: the kernel and the data on which it is tried"},
    Word{"plugin", "a shared library that brings kernels"},
    Word{"contract",
         "what a kernel promises to round, and how: inputs, operands, inverse, stored state, output, "
         "accumulator, exponential"},
    Word{"card",
         "the points of a *contract*, each with its value: `bf16+beta_k:bf16` is a name and changes. "
         "`samestate card` "
         "reads one from a kernel's outputs; declared `nearest`, its *twin* is reported and does not gate "
         "([card.md](card.md))"},
    Word{"stage",
         "a step of a layer between two *taps*, judged as an *operator* from what the kernel itself gave it: "
         "\"twin share of stage norm\" is that gate of that step"},
    Word{"tap",
         "a tensor between two *stages* of a layer that a kernel hands out under `taps=1`: what its next "
         "stage "
         "reads, value for value"},
    Word{"point",
         "a place in a kernel where a value is rounded, or a setting of how sums and exponentials are made: "
         "`beta_k`, "
         "`inverse`, `scan` …, `softmax_attention.weights` …; `samestate list contracts --long`, `samestate "
         "list points`"},
    Word{"regime", "a named way of drawing data: normal, slow, collinear, exact …"},
    Word{"case",
         "everything that determines one run, data included, on one line of text; `v1 SYSTEM key=value …`"},
    Word{"key", "one `name=value` of a case line"},
    Word{"run", "one execution of a kernel on a case; a *run file* holds its tensors"},
    Word{"call", "one invocation of a kernel: a run is one call or, by its *path*, several"},
    Word{"path",
         "how a sequence is cut into calls and forms, from its first token to its last: whole, split, "
         "prefill and decode"},
    Word{"piece",
         "a part of a run judged by itself, from the kernel's own state, where the bound of the whole says "
         "nothing"},
    Word{"segment", "as *piece*, in the name of a gate: `segment row` is the gate row of a piece"},
    Word{"layout", "how tensors lie in memory: dense, padded, far"},
    Word{"scale",
         "the factor of q k: dk^-1/2 rounded to fp32; in regimes that are *exact* the power of two nearest "
         "to it; or what the key says"},
    Word{"seed", "64 bits from which every element of a case's data is made, by (seed, tensor, place)"},
    Word{"error",
         "kernel minus oracle: 2-norm of a *row* (its dv values), RMS of a *head* over its rows, Frobenius "
         "norm of a *state*, absolute value of an *element*. In the units of the output"},
    Word{"row",
         "1. of o: the dv values of one token in one head; its *error* is a 2-norm. 2. of a *state*: the dv "
         "values of one key channel. 3. of an operator's output: all extents but the last. The *gate* of "
         "that name holds each row of o against its *tolerance*"},
    Word{"head",
         "one of the Hv independent sequences of states of a batch row; a value head, of which Hv/Hk share a "
         "key head. The *gate* of that name holds the RMS of all rows' errors of a head against their "
         "prediction *B*: it sees what is a little wrong everywhere"},
    Word{"token", "one step of a sequence, from 0; of a packed run counted within its sequence"},
    Word{"channel", "one of the dv columns of o, or of the dk of a key"},
    Word{"element",
         "one number of an output. Operators are judged element by element: the *gate* of that name"},
    Word{"state",
         "the dk x dv matrix of a head that a kernel carries from token to token, and returns as "
         "`final_state` after the last one; of an operator a tensor carried from call to call. In a place, "
         "*row* and column of it"},
    Word{"bound",
         "the error that a correct kernel may make on this case's data under its contract. Three modes: det "
         "(worst case, a theorem), prob and semi (statistical)"},
    Word{"Bp",
         "the error of a row before its output is rounded, predicted from the roundings of the contract: "
         "their second moments, or the worst case in mode det"},
    Word{"Bc",
         "the part of a row's error that a decay makes which rounds the same way at every token: it adds up "
         "linearly, so that *lambda* does not multiply it"},
    Word{"R", "the rounding of the output to its format: half an ulp of the values of a row"},
    Word{"B",
         "the predicted RMS error of a row, √((Bp + Bc)² + R²/3); a row's *tolerance* is the least of λ Bp + "
         "Bc + R and the worst case (*hard*)"},
    Word{"lambda",
         "λ: by how much a row's error may exceed the predicted *Bp* before it fails, as 5, or 8.7 where "
         "keys repeat; 1 where the "
         "bound is a worst case ([theory/bounds.md](theory/bounds.md), 7)"},
    Word{"running error",
         "a scalar that carries a rigorous worst-case bound through a reference: the bound of operators"},
    Word{"tolerance",
         "what an error is held against: a bound with its factor and the rounding of the output"},
    Word{"ratio", "error over tolerance, the number that every report shows. Above 1 fails"},
    Word{"gate",
         "one comparison within a run: exact, range, row, head, state, hard, twin, element, law, memory, "
         "environment. "
         "`samestate gate` runs all cases through all of them"},
    Word{"exact state",
         "a gate whose name ends in *state* speaks of the final state: exact state, range state, hard state"},
    Word{"range",
         "the *gate* of values that are not finite although every exact value fits the contract's formats"},
    Word{"memory",
         "the *gate* of writes outside the outputs, of inputs that came back changed and of elements never "
         "written"},
    Word{"environment",
         "the *gate* of the floating-point environment: a kernel, or the loading of its library, that leaves "
         "the "
         "rounding mode, FTZ, DAZ, the exception masks or the x87 precision of the calling thread changed"},
    Word{"between devices",
         "the *gate* of `--each-device`: what a kernel wrote on one GPU has other bits on another "
         "([devices.md](devices.md))"},
    Word{"poison",
         "NaN and huge numbers of both signs in which outputs lie before a call, so that what was never "
         "written shows"},
    Word{"guard", "the margins around each tensor, which must come back as they were"},
    Word{"hard",
         "against the worst-case bound: a ratio above 1 is a proof that no rounding of the contract explains "
         "the error"},
    Word{"twin",
         "a CPU run that rounds where the contract says: the kernel is also compared with it, since an "
         "undeclared rounding shows there and nowhere else. As a *gate*: twin for a single row, twin median "
         "and twin RMS "
         "for all rows. Of operators in 16 bit it is the reference, rounded at the points that it marks, "
         "less those that the "
         "kernel leaves out: twin element for one that fp32 does not explain, twin share for roundings "
         "beside the "
         "declared ones"},
    Word{
        "worst at",
        "where the error is the largest share of its *bound*: sequence, *head*, token and channel, from 0; "
        "of a state, and of a named tensor whose rows are not tokens or whose columns are not heads, its row "
        "and column"},
    Word{"compared",
         "of the rows of a run those that were held against a *bound*: all but what belongs to no sequence, "
         "and tokens "
         "whose choice roundings may turn"},
    Word{"o", "the output of the recurrent family, one row a token and head; `final_state` is the other one"},
    Word{"held",
         "of a case of many heads, those that are compared within their *bound*: ends, block edges, drawn "
         "ones and the farthest from float64, in which all others are evaluated "
         "([judging.md](judging.md))"},
    Word{
        "policy",
        "how much of a case is *held* and how much work *twin* and drawn roundings may take, by name: `gate` "
        "for "
        "every command, `deep` for the second look of `repro` (its line `deeper`), `file`, `captured` and "
        "`bench` where a run cannot be repeated or is timed. A *record* without one is older, and the gate's "
        "([policy.md](policy.md))"},
    Word{"sampled",
         "the *gate* of operators in 16 bit: the reference runs 32 times with drawn roundings where the "
         "contract keeps 16 bit, and the kernel's error has to belong to theirs. With the statistic that "
         "decides: sampled tensor (RMS over rows), sampled row, element or column (the largest), sampled "
         "slope "
         "(an error along the output, such as a wrong scale). What exceeds a limit is held against 128 "
         "others, "
         "which decide"},
    Word{"vacuous",
         "a comparison that could not have failed: a bound above the size of the output, nothing compared, "
         "all zero. Never a pass"},
    Word{"verdict",
         "pass, fail, vacuous, unsupported, skipped, crash, timeout or flaky. *Judged*: pass, fail, flaky. "
         "*Failure*: fail, crash, timeout, flaky; without flaky, *repeatable* (`oracles/verdict.h`)"},
    Word{"exit code",
         "0: right, or done. 1: *fail*. 2: bad input, which is named, or a file that could not be written. "
         "3: nothing failed, but the run says "
         "too little: a gate, a search or a card "
         "interrupted, a record compared that is cut, too few cases judged, too many *vacuous*. 4: *flaky*. "
         "5: *crash* or *timeout*. 77: "
         "nothing could run "
         "here ([judging.md](judging.md))"},
    Word{"pass", "*verdict*: within every bound, and the bounds could have failed it"},
    Word{"fail",
         "*verdict*: a ratio above 1, a changed input, an unwritten output; it came each time it was run"},
    Word{"unsupported", "*verdict*: the kernel says that it does not do this case"},
    Word{"skipped", "*verdict*: no such device here"},
    Word{"flaky", "*verdict*: another one when the same case was run again"},
    Word{"crash", "*verdict*: the kernel's process died, or its function threw"},
    Word{"timeout", "*verdict*: no answer within --timeout"},
    Word{"likely cause",
         "what a failure says of its cause by itself: which gate, o or the state, beyond the worst case or "
         "within it. Failures are shown by kernel, form, law and likely cause, with one example each; *looks "
         "like* is what an explanation of that example found"},
    Word{"looks like",
         "in an explanation: a known mistake that gives just the kernel's values, or the pattern in which "
         "the wrong places lie"},
    Word{"stands out",
         "of a case: its ratio lies far above the median of the cases of its system, form, contract, law and "
         "gate. What reports list first, not the largest ratio"},
    Word{"attained",
         "of a bound: every ratio of such a group is 1, as of an output that is rounded once (half an ulp is "
         "error and bound). Counted, not ranked"},
    Word{"record",
         "verdict and numbers of one case: a line of JSON Lines. A *recorded run* is a file of them"},
    Word{"law",
         "a relation between runs of **one kernel** that must hold: split and resume, causality, batch "
         "permutation. `list laws`, `law=`"},
    Word{"identity",
         "a relation between forms of the **references**, computed in float64 and in 50 digits; no kernel is "
         "run. `samestate identities`"},
    Word{"negative control", "an identity that must *not* hold: a mistake whose effect has to show"},
    Word{"equation", "a row of the *ledger* and what was computed for it"},
    Word{"ledger",
         "every statement of the five documents with its verdict ([theory/ledger.md](theory/ledger.md)) and "
         "its computation ([equations.md](equations.md))"},
    Word{"erratum", "a statement of a document that is false, with the correct form beside it"},
    Word{"document",
         "one of the five texts that the project started from; named by title, not in the repository"},
    Word{"finding", "what was computed for one equation: outcome and the numbers"},
    Word{"golden", "tensors made by somebody else's code, which the references must reproduce"},
    Word{"evidence",
         "a recorded run on a device, with the hash of the kernel sources that ran; *fresh* while those are "
         "unchanged"},
    Word{
        "bug",
        "one of the 90 catalogued mistakes of public kernels, M01 to M90 ([theory/bugs.md](theory/bugs.md))"},
    Word{"mutant",
         "a correct kernel with one bug put back (M..) or one fault in its equations (F); *killed* when the "
         "gate fails it"},
    Word{"adversary", "a mutant that cheats or damages its process instead of computing wrongly"},
    Word{"plan",
         "the cases of a gate run: corpus, *edges*, the covering set of *pairs*, drawn cases and *ordinary "
         "calls*, as many as the run's budget of time allows "
         "([judging.md](judging.md#where-cases-come-from))"},
    Word{"ordinary call",
         "a call as a server or a trainer makes it: a model of the catalogue times a kind of call, from "
         "training step to resume"},
    Word{"factor",
         "of a plan: one thing that a case chooses, cut into levels that a kernel may treat differently: a "
         "contract, a "
         "value of a key, a band of a size. Sizes have bands (8-31, 8-31/8: the multiples of 8 in it) and in "
         "each every "
         "*boundary* is met once"},
    Word{"boundary",
         "a size at which kernels change what they do, and its neighbours: powers of two, multiples of 8 to "
         "256, some "
         "primes (`fuzz/plan/boundaries.cpp`)"},
    Word{"pair",
         "levels of two *factors* in one case, as contract=bf16 with T=128-511. The gate says which share of "
         "those that a "
         "case can have were judged; a gate of one kernel meets all of them that it can afford, one of many "
         "kernels as many as its time allows, effort 10 every *triple*"},
    Word{"triple", "as *pair*, of three factors"},
    Word{"partition",
         "where a chunked form cuts a sequence. Each has its own roundings and its own *bound*: a kernel "
         "with a partition "
         "of its own declares it in its limits, as `chunk in 64`"},
    Word{"median",
         "1. of a group of cases: half of their ratios lie below. 2. median row: the ratio below which half "
         "of the rows "
         "of a run lie; a *twin* whose median is far off rounds differently everywhere"},
    Word{"farthest",
         "farthest above its group: what *stands out* most, first. A place where two runs or kernel and "
         "oracle differ most, in units of the "
         "tolerance, is worst"},
    Word{"filter",
         "which cases a verb is about: `--contract`, `--where T=64..4096`, `--exclude` … "
         "([case-line.md](case-line.md))"},
    Word{"shard",
         "part I of N of a plan or a search, `--shard I/N`, counted from 0: of a plan parts that take alike "
         "long; `samestate merge` joins them ([shards.md](shards.md))"},
    Word{
        "merge",
        "the verb that makes one run of the files of all *shards* of it, in any order: the records, reports, "
        "verdict and exit code that the one run would have had ([shards.md](shards.md))"},
    Word{
        "rank",
        "1. of a case: one of the `ranks=` parts into which a call of *sequence_parallel* or *head_parallel* "
        "is divided by its *cuts*; a kernel hands its ranks to devices itself. 2. one of the processes that "
        "mpirun starts for a run: rank 0 runs the verb and hands cases out in "
        "pieces, the others judge them; as a gate: the ranks that a case ran on were lost, three times "
        "([mpi.md](mpi.md))"},
    Word{
        "cuts",
        "where one *rank* of a case ends and the next begins: `cuts=even` equal parts of whole chunks, or of "
        "value heads; `cuts=drawn` anywhere; `cuts=heads`, in packed and decode, equal parts of value heads. "
        "A "
        "kernel gets them as numbers: rank r has the tokens, or value heads, [cuts[r], cuts[r + 1])"},
    Word{"drawn",
         "made from the *seed*: data; the cases of a *plan* that follow no *edge* and no *pair*; "
         "`cuts=drawn`: "
         "*cuts* anywhere, inside chunks and sequences too, some *ranks* empty"},
    Word{"gathered",
         "collected from where they lie into one block: the experts of the groups that "
         "`group_limited_router` keeps, in its *form* of that name; an expert's tokens, in `loop`"},
    Word{"gpus",
         "of a run in a *record*: the devices that shared its cases, number, name, UUID and PCI address of "
         "each; `gpu` of a case is the UUID of the one that it ran on ([devices.md](devices.md))"},
    Word{"outputs",
         "of a case in a *record*: a hash of what a cuda kernel wrote, an output; equal hashes are equal "
         "bits, "
         "which `samestate compare` and `--each-device` look at ([devices.md](devices.md))"},
    Word{"ran_by",
         "of a case in a *record*: the function that ran in the place of the declared one, which handed its "
         "call "
         "on: module, file and hash of a subject ([subjects.md](subjects.md))"},
    Word{"spent",
         "of a case in a *record*: where the seconds of a subject's calls went, as it says itself: start, "
         "waiting, compile, tune, copy, kernel, passing; kernels compiled, and loaded from a cache "
         "([subjects.md](subjects.md))"},
    Word{"tuned",
         "of a case in a *record*: the setting of `--autotune` and the configurations that the tuners of a "
         "subject chose under it; `retuned`: of a failure, what its repeat with the other setting gave, and "
         "what was chosen there ([subjects.md](subjects.md))"},
    Word{"waiting",
         "of a subject's seconds (`--timings`, *spent*): for a process that was busy with the calls of other "
         "cases"},
    Word{"tune",
         "of a subject's seconds: in a tuner of its package that timed configurations (`--autotune`)"},
    Word{"passing",
         "of a subject's seconds: what its calls took beyond that which it says itself: messages, and "
         "tensors that the judge wrote "
         "and read"},
    Word{"variant",
         "what of a kernel one compilation serves: the calls that share the values of the keys for each of "
         "which it is compiled "
         "anew (`dk`, `contract`, `T%16`), as its subject declares or the gate learns from its first calls"},
    Word{"compiles",
         "how many *variants* of a kernel a gate takes (`--compiles`); the summary says which it left out"},
    Word{"autotune",
         "what a subject's tuners do (`--autotune`): first, their first configuration that runs, untimed; "
         "cached, their own choice, "
         "kept on disk; full, their own choice, made anew. A record has it among what its subject says of "
         "itself"},
    Word{
        "refused",
        "the *gate* of cases that are *unsupported* since their kernel threw before it launched anything and "
        "all cases that it refused so share a size or setting, which its limits do not name; a run with "
        "such cases is no pass ([subjects.md](subjects.md))"},
    Word{"captured",
         "of a case in a *record*: the file of a call that samestate.capture recorded "
         "([subjects.md](subjects.md))"},
    Word{"numbers",
         "of the same: what a person asks of it: largest absolute error and where, relative RMS, and what a "
         "right "
         "kernel stays within on its data (`allowed_`) or is expected to have (`expected_`); of the final "
         "state with "
         "`state_` before each"},
    Word{"devices lost",
         "the *gate* of cases that were *skipped* since no device was left: the driver no longer had the one "
         "that they ran on, nor any other. No verdict of the kernel; the run has judged too little "
         "([devices.md](devices.md))"},
    Word{"edge",
         "a place where kernels are known to break, and whether a case reaches it: a chunk's end ± 1, α = 0, "
         "an empty sequence …"},
    Word{"corpus", "case lines kept for ever, replayed first"},
    Word{"shrink", "to make a failing case smaller as long as it fails alike"},
    Word{"coverage", "which systems, forms, contracts, regimes, laws and edges a run reached"},
    Word{"group", "cases or goldens that are reported together; of goldens, tensors with one common prefix"},
    Word{"trace", "what a law ran and compared, kept to explain its failure"},
    Word{"worker",
         "a process that runs cases for another one, so that a crash or a hang is one case's verdict"},
    Word{"sweep",
         "errors measured along one axis (chunk, length, decay, condition, width); its results are *points*"},
    Word{"floor",
         "1. of code: what a folder may include ([ARCHITECTURE.md](../ARCHITECTURE.md)). 2. of time: the "
         "least that bytes and operations allow ([bench.md](bench.md))"},
    Word{"baseline", "ratios of an earlier run; one that grew is a regression even below 1"},
    Word{"exact",
         "regimes of integers and powers of two, in which no operation rounds: compared bit for bit"},
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
  // Bp and bp are different words, so an exact match comes first.
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
        // The location of the page, as one would type it from the root.
        const std::string_view target = markdown.substr(close + 2, end - close - 2);
        out += target.starts_with("../") ? std::string(target.substr(3)) : "docs/" + std::string(target);
        i = end;
        continue;
      }
    }
    out += c;
  }
  return out;
}

std::string words_markdown() {
  std::string out =
      "# Words\n\nOne meaning each, in code, messages and pages. A word in *italics* has a row of its own. "
      "`samestate explain WORD` prints a\nrow, and of a contract, regime, law, system, form or key what it "
      "stands "
      "for; this page is `samestate explain --markdown`.\n\n| word | means |\n|---|---|\n";
  for (const Word& row : kWords) out += fmt::format("| **{}** | {} |\n", row.word, row.means);
  return out;
}

}  // namespace samestate
