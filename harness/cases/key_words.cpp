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
    KeyWords{"form", "a form of the system", "how it is evaluated"},
    KeyWords{"chunk", "0..2^24",
             "tokens of a chunk, read by chunked forms; in decode and packed 0 takes the recurrent kernel"},
    KeyWords{"prefill", "0..T", "form=decode: tokens in the first call, before one a call"},
    KeyWords{"step", "1..2^24",
             "form=decode of named tensors: tokens in each call behind the first, as when drafted tokens are "
             "verified or a prompt is prefilled in pieces; the recurrent family has state=random for that"},
    KeyWords{
        "cached", "0, 1",
        "form=decode of systems that get the rows of all tokens before them: the first call is not made, its "
        "keys and values are given"},
    KeyWords{
        "ranks", "1..4096",
        "form=sequence_parallel and head_parallel, and packed and decode on kernels of those forms: among "
        "how many ranks the tokens of a call are divided, along the row of all sequences where it is "
        "packed, or its value heads"},
    KeyWords{
        "cuts", "even, drawn, heads",
        "how: equal parts of whole chunks, the last that holds tokens shorter and those behind it "
        "empty; or anywhere, "
        "drawn from the seed, some ranks empty; of form=head_parallel the same of value heads, and heads "
        "in packed and decode: equal parts of them"},
    KeyWords{"lengths", "N,N,...", "form=packed: tokens of each sequence, zeros included; T is their sum"},
    KeyWords{"B", "1..2^24", "batch: sequences of T tokens each"},
    KeyWords{"T", "0..2^24", "tokens of a sequence"},
    KeyWords{"Hk", "1..2^24", "key heads"},
    KeyWords{"Hv", "a multiple of Hk", "value heads, each with a state of its own"},
    KeyWords{"dk", "1..2^24", "width of a key"},
    KeyWords{"dv", "1..2^24", "width of a value"},
    KeyWords{
        "heads", "interleaved, tiled",
        "which key head serves value head h: interleaved h Hk / Hv, neighbours share one; tiled h mod Hk"},
    KeyWords{"l2norm", "0, 1", "the kernel normalises q and k itself"},
    KeyWords{
        "scale", "a number of fp32",
        "factor of q k; absent: dk^-1/2 rounded to fp32, in an exact regime the power of two nearest to it"},
    KeyWords{"contract", "`samestate list contracts`, or one with changes: `bf16+beta_k:bf16`",
             "what the kernel may round, and how; `samestate list contracts --long` has the points"},
    KeyWords{"regime", "`samestate list regimes`", "how the data are drawn"},
    KeyWords{"state", "none, random", "the initial state: not given, or drawn"},
    KeyWords{
        "layout", "dense, padded, far, mixed, fused, permuted, sliced, page_end",
        "how the tensors lie in memory: without gaps; with gaps; rows (of the batch, of tokens or of "
        "heads, by "
        "tensor) more than 2^31 elements apart; each with gaps of its own or none; parts of the rows of one "
        "buffer; as [B, H, T, D]; the first columns of wider rows; dense, and behind each tensor a page that "
        "nobody may touch"},
    KeyWords{"final", "apart, none, in_place",
             "the final state: memory of its own, not asked for, or that of the initial one"},
    KeyWords{"unowned", "N,N",
             "form=packed: tokens before the first and after the last sequence that belong to none"},
    KeyWords{"repeat", "0, 1", "each call after others on the same memory, and twice"},
    KeyWords{
        "taps", "0, 1",
        "the kernel hands out what lies between its stages, as far as its row does, and each stage is judged "
        "from what it read"},
    KeyWords{"law", "`samestate list laws`",
             "the relation between runs that is judged; absent: against the oracle"},
    KeyWords{
        "kernel", "`samestate list kernels`",
        "the kernel that runs; absent: the first of the system and form, in the order of `samestate list "
        "kernels`: of those of the processor, where the form has one"},
    KeyWords{"seed", "0..2^64-1, also 0x2a",
             "of the data: each element is a function of seed, tensor and place"},
};

/// Returns the text as a cell of a table.
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
    case KeyOf::family:
      return "the recurrent family";
    case KeyOf::packed:
      return "systems with packed batches";
    case KeyOf::layers:
      return "layers";
    case KeyOf::every:
      break;
  }
  return "every system";
}

/// Returns the table of laws, one row per law.
std::string laws_markdown() {
  std::string out =
      "\n## Laws\n\nA system has each law whose needs are among its properties; of two laws of one name no "
      "system has "
      "both. `samestate list laws` counts the systems, `samestate list systems` has their properties.\n\n"
      "| law | tried on | says | ledger |\n|---|---|---|---|\n";
  for (const Law& law : laws())
    out += fmt::format("| `{}` | {} | {} | {} |\n", law.name, tried_on(law), markdown(law.says), law.ids);
  out += "\n| property | means |\n|---|---|\n";
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
  std::string out =
      "# The case line\n\nEverything that determines one run, its data included, on one line of printable "
      "ASCII:\n\n"
      "```\nv1 SYSTEM [KEY=VALUE ...]\n```\n\nKeys stand in any order, each at most once; what is left out "
      "has its "
      "default. Every report prints the canonical line: keys in the order\nbelow, defaults left out. A line "
      "that "
      "was recorded keeps its meaning: another grammar would begin with v2. A wrong line is exit 2 with the\n"
      "key, the value, what is known and the remedy. This page is `samestate explain --case-line`, made from "
      "the "
      "table of keys (`harness/cases/keys.cpp`).\n\n"
      "| key | of | values | default | means |\n|---|---|---|---|---|\n";
  bool sizes_told = false;
  for (const KeyRow& key : key_rows()) {
    if (std::ranges::count(systems(), key.of, &System::name) > 0) {
      if (!std::exchange(sizes_told, true))
        out += "| *sizes* | operators | below | below | what the system has beside tokens |\n";
      continue;
    }
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, key.of, key.takes,
                       key.standard.empty() ? "–" : key.standard, key.means);
  }
  out +=
      "\nThe recurrent family is gated_delta_rule, delta_rule, retention and linear_attention.\n\n## "
      "Systems, forms "
      "and sizes\n\nThe first form is the default, also where it is the oracle's alone, as `equation` of "
      "rms_norm, or has kernels of a device alone, as `naive` of latent_attention: a line then names another "
      "form, and a run without one says which have kernels (`samestate list kernels`). A size is a key of "
      "the "
      "line: name=default, least..most.\n\n"
      "| system | forms | sizes of its own |\n|---|---|---|\n";
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
  out +=
      "\n## Taps of layers\n\nUnder taps=1 a kernel hands out those of these that its row names "
      "([plugins.md](plugins.md#taps)).\n\n| system | taps |\n|---|---|\n";
  for (const System* system : systems()) {
    if (!system->taps.empty())
      out += fmt::format("| {} | {} |\n", system->name, fmt::join(system->taps, ", "));
  }
  out += laws_markdown();
  out +=
      "\n## Filters\n\n`gate`, `fuzz`, `sweep` and `bench` take the same conditions on the same keys:\n\n"
      "```\nCONDITION   KEY=VALUE[,VALUE...]      any of the values\n"
      "VALUE       a name, or a pattern with * and ?; a number; a range A..B, A.. or ..B with both ends; "
      "none: not on "
      "the line\nKEY         system, kernel, or a key or size of the tables above\n```\n\n"
      "Conditions in one text, with blanks between them, must all hold. `--where TEXT` keeps the cases of "
      "which it "
      "holds, and narrows when given\nagain; `--exclude TEXT` drops them, and drops more when given again. "
      "`--contract`, `--regime`, `--form`, `--law` and `--layout` are\nshort for a condition on that key. A "
      "case "
      "without the key (dk of rms_norm, chunk of a form without chunks) meets no condition on it.\n`--list` "
      "prints "
      "the lines that are left and runs none.\n\n"
      "```sh\nsamestate gate --contract bf16 --where 'T=64..4096' --exclude regime=measured --list\n"
      "samestate gate --system retention --law '*' --list | samestate repro -\n"
      "samestate fuzz --where 'Hv=2.. dk=128' --exclude 'contract=bf16 layout=far' --budget 10m\n```\n";
  return out;
}

}  // namespace samestate
