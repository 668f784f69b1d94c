#include "harness/cases/key_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "harness/cases/case_filter.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"

namespace samestate {
namespace {

constexpr std::array kKeyRows = {
    KeyWords{"pass", "forward, backward",
             "the equation of the system, or its gradients from the cotangents of its outputs"},
    KeyWords{"form", "a form of the system", "how the system is evaluated"},
    KeyWords{"chunk", "0..2^24", "tokens of a chunk; in decode and packed, 0 takes the recurrent kernel"},
    KeyWords{"prefill", "0..T", "form=decode: tokens of the first call; the others have one each"},
    KeyWords{"step", "1..2^24",
             "form=decode of named tensors: tokens of each call after the first, as when drafted tokens are "
             "verified or a prompt comes in pieces"},
    KeyWords{"cached", "0, 1",
             "form=decode of systems that read the rows of all earlier tokens: the first call is left out, "
             "and its keys and values are given"},
    KeyWords{"ranks", "1..4096",
             "the number of ranks among which the tokens (sequence_parallel) or value heads (head_parallel) "
             "of a call are divided; also for packed and decode on kernels of these forms"},
    KeyWords{"cuts", "even, drawn, heads",
             "where ranks are cut: in equal parts of whole chunks or heads; anywhere, drawn from the seed; "
             "in packed and decode, in equal parts of value heads"},
    KeyWords{"lengths", "N,N,...", "form=packed: tokens of each sequence, which may be 0; T is their sum"},
    KeyWords{"B", "1..2^24", "batch: sequences of T tokens each"},
    KeyWords{"T", "0..2^24", "tokens of a sequence"},
    KeyWords{"Hk", "1..2^24", "key heads"},
    KeyWords{"Hv", "a multiple of Hk", "value heads, each with a state of its own"},
    KeyWords{"dk", "1..2^24", "width of a key"},
    KeyWords{"dv", "1..2^24", "width of a value"},
    KeyWords{"heads", "interleaved, tiled",
             "the key head that serves value head h: h Hk / Hv, so that neighbours share one, or h mod Hk"},
    KeyWords{"l2norm", "0, 1", "whether the kernel normalises q and k itself"},
    KeyWords{"scale", "a number of fp32",
             "factor of q k; the default is dk^-1/2 rounded to fp32, and in an exact regime the nearest "
             "power of two"},
    KeyWords{"contract", "`samestate list contracts`, or one with changes: `bf16+beta_k:bf16`",
             "what the kernel may round, and how; `samestate list contracts --long` shows the points"},
    KeyWords{"regime", "`samestate list regimes`", "how the data are drawn"},
    KeyWords{"state", "none, random", "the initial state: not given, or drawn"},
    KeyWords{"cotangent", "both, o, state",
             "the cotangents that are given: of the state after the call, of the other output, or of both; "
             "one that is not "
             "given is zero"},
    KeyWords{"cotangents", "normal, output, ones, tiny, large, basis",
             "their values: normal numbers; the outputs themselves; ones; normal numbers times 1e-4 or 30; a "
             "single 1 "
             "in each sequence"},
    KeyWords{"layout", "dense, padded, far, mixed, fused, permuted, sliced, page_end",
             "how the tensors lie in memory: without gaps; with gaps; with rows more than 2^31 elements "
             "apart; each with gaps of its own or none; as parts of the rows of one buffer; as [B, H, T, D]; "
             "as the first columns of wider rows; dense and ending at a page that nobody may touch"},
    KeyWords{"final", "apart, none, in_place",
             "the final state: in memory of its own, not asked for, or in the memory of the initial state"},
    KeyWords{"unowned", "N,N",
             "form=packed: tokens before the first and after the last sequence that belong to no sequence"},
    KeyWords{"repeat", "0, 1", "whether each call is made twice, after other calls on the same memory"},
    KeyWords{"taps", "0, 1",
             "whether the kernel hands out the tensors between its stages, so that each stage is judged on "
             "its own"},
    KeyWords{"law", "`samestate list laws`",
             "the relation between runs that is judged; without it the run is judged against the oracle"},
    KeyWords{"kernel", "`samestate list kernels`",
             "the kernel that runs; the default is the first one of the system and form, CPU kernels before "
             "others"},
    KeyWords{"seed", "0..2^64-1, also 0x2a",
             "the seed of the data: each element is a function of seed, tensor and place"},
};

/// A cell of a table.
std::string markdown(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string default_of(const Key& key) {
  if (key.name == "form") return "the first of the system";
  if (key.name == "Hv") return "Hk";
  if (key.name == "dv") return "dk";
  return key.value(Case{});
}

std::string_view name_of(KeyOf of) {
  switch (of) {
    case KeyOf::family_forward:
      return "the recurrent family, forward";
    case KeyOf::family:
      return "the recurrent family";
    case KeyOf::two_cotangents:
      return "pass=backward of systems with a state";
    case KeyOf::backward:
      return "pass=backward";
    case KeyOf::passes:
      return "systems with gradients";
    case KeyOf::packed:
      return "systems with packed batches";
    case KeyOf::layers:
      return "layers";
    case KeyOf::every:
      break;
  }
  return "every system";
}

/// The table of laws, a row a law.
std::string laws_markdown() {
  std::string out = R"(
## Laws

A system has a law if it has the properties that the law needs (`samestate list systems` shows
them).

| law | tried on | statement | ledger |
|---|---|---|---|
)";
  for (const Law& law : laws())
    out += fmt::format("| `{}` | {} | {} | {} |\n", law.name, tried_on(law), markdown(law.says), law.ids);
  out += "\n| property | meaning |\n|---|---|\n";
  for (const PropertyWords& words : property_words())
    out += fmt::format("| {} | {} |\n", words.noun, words.means);
  return out;
}

}  // namespace

std::span<const KeyWords> key_words() { return kKeyRows; }

std::vector<KeyRow> key_rows() {
  std::vector<KeyRow> out;
  for (const Key& key : keys()) {
    if (key.name == "contract") {
      for (const System* system : systems()) {
        for (const CaseSize& size : system->sizes) {
          if (size.own)
            out.push_back({std::string(size.name), std::string(system->name),
                           fmt::format("{}..{}", size.least, size.most), std::to_string(size.standard),
                           std::string(size.summary)});
        }
      }
    }
    const auto words = std::ranges::find(kKeyRows, key.name, &KeyWords::name);
    const KeyWords none{key.name, "", ""};
    const KeyWords& said = words == kKeyRows.end() ? none : *words;
    out.push_back({std::string(key.name), std::string(name_of(key.of)), std::string(said.takes),
                   default_of(key), std::string(said.means)});
  }
  return out;
}

std::string case_line_markdown() {
  std::string out = R"(# The case line

This page defines the line of text that determines a run, its data included.

```
v1 SYSTEM [KEY=VALUE ...]
```

Keys stand in any order, each at most once, in printable ASCII; a key that is left out has its
default. Reports print the canonical line: keys in the order below, without defaults. A recorded
line keeps its meaning, since another grammar would begin with v2. A wrong line is exit 2, with the
key, the value, what is known and the remedy. The page is `samestate explain --case-line`.

| key | of | values | default | meaning |
|---|---|---|---|---|
)";
  bool sizes_told = false;
  for (const KeyRow& key : key_rows()) {
    if (std::ranges::count(systems(), key.of, &System::name) > 0) {
      if (!std::exchange(sizes_told, true))
        out += "| *sizes* | operators | below | below | the sizes of the system |\n";
      continue;
    }
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, key.of, key.takes,
                       key.standard.empty() ? "–" : key.standard, key.means);
  }
  out += R"(
The recurrent family is gated_delta_rule, delta_rule, retention and linear_attention. A system whose
name ends in `.backward` gives the gradients of the system before it; a line of it says `v1
gated_delta_rule pass=backward ..` ([gradients](../do/gradients.md)).

## Systems, forms and sizes

The first form is the default. If only the oracle evaluates it (`equation` of rms_norm), or only a
device has a kernel of it (`naive` of latent_attention), a line has to name another form; the error
says which forms have kernels. A size is a key of the line: name=default, least..most.

| system | forms | sizes of its own |
|---|---|---|
)";
  for (const System* system : systems()) {
    std::vector<std::string> sizes;
    for (const CaseSize& size : system->sizes) {
      if (size.own)
        sizes.push_back(
            fmt::format("{}={} ({}..{}: {})", size.name, size.standard, size.least, size.most, size.summary));
    }
    out += fmt::format("| {} | {} | {} |\n", system->name, fmt::join(system->form_names(), ", "),
                       fmt::join(sizes, "; "));
  }
  out += R"(
## Taps of layers

Under taps=1 a kernel hands out those of the following tensors that its row names
([how](../do/plugin.md#taps)).

| system | taps |
|---|---|
)";
  for (const System* system : systems()) {
    if (!system->taps.empty())
      out += fmt::format("| {} | {} |\n", system->name, fmt::join(system->taps, ", "));
  }
  out += laws_markdown();
  out += R"(
## Filters

`gate`, `fuzz`, `sweep` and `bench` take the same conditions on the same keys:

```
CONDITION   KEY=VALUE[,VALUE...]      any of the values
VALUE       a name, or a pattern with * and ?; a number; a range A..B, A.. or ..B with both ends;
            none: the key is not on the line
KEY         system, kernel, or a key or size of the tables above
```

Conditions in one text, with blanks between them, must all hold. `--where TEXT` keeps the cases for
which it holds, and `--exclude TEXT` drops them; both may be given again. `--contract`, `--regime`,
`--form`, `--law` and `--layout` are short for a condition on that key. A case without the key meets
no condition on it. `--list` prints the lines that are left and runs none.

```sh
samestate gate --contract bf16 --where 'T=64..4096' --exclude regime=measured --list
samestate gate --system retention --law '*' --list | samestate repro -
samestate fuzz --where 'Hv=2.. dk=128' --exclude 'contract=bf16 layout=far' --budget 10m
```
)";
  return out;
}

}  // namespace samestate
