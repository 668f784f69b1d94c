#include "fuzz/plan/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fuzz/plan/joint_edges.h"
#include "fuzz/plan/kernel_turns.h"
#include "fuzz/plan/single_edges.h"
#include "fuzz/plan/wide_calls.h"
#include "reference/error.h"

namespace samestate {
namespace {

using enum PlanList::Kernels;
using enum PlanList::Under;

/// Adds the partial case lines that the system's row lists.
template <auto rows>
void put_parts(EdgeCases& to, const Case& base, double /*most*/) {
  for (const std::string_view part : to.system().plan.*rows) to.put(base, part);
}

template <FamilyCall::Tried tried>
void put_calls_tried(EdgeCases& to, const Case& /*base*/, double /*most*/) {
  put_family_calls(to, tried);
}

constexpr std::string_view kCovering = "all, or the first ones, which add most, where time is short";
constexpr std::string_view kWholeTriples = "from --effort 10 on, whatever they take";

/// The order is that of the plan. Adjacent rows with the same `under` take turns under its contracts.
constexpr std::array kLists{
    PlanList{
        .name = kCorpusList,
        .adds =
            "The lines of the corpus, on every kernel that evaluates their form and promises their contract",
        .why = "Each of them once failed, showed that the judge was wrong, or is kept because it is tricky.",
        .share = "every one, before the plan and beside its time"},
    PlanList{.name = "family calls over ranks too",
             .adds = "Calls of the recurrent family with batches, packed sequences, grouped heads and "
                     "settings together, each under one contract in turn",
             .why = "A second adversary's bugs survived where four or five ordinary choices meet, and "
                    "kernels over ranks have code of their own for each of them.",
             .edges = put_calls_tried<FamilyCall::Tried::divided_as_well>},

    PlanList{.name = "lengths",
             .adds = "Calls of 0, 1, 2, C - 1, C, C + 1 and 2 C + 3 tokens in chunks of C, or of 0, 1, 2, 7, "
                     "8, 9 and 33 without chunks, under each contract",
             .why = "Loops over tokens and chunks go wrong at their ends, and some faults show in the first "
                    "call of a process alone.",
             .under = each_contract,
             .edges = put_lengths},
    PlanList{.name = "settings of divided heads",
             .adds = "Every value of every key, of kernels whose ranks divide the heads",
             .why = "Which heads a rank has and whose rows it reads hang on the head map, the cuts and the "
                    "number of ranks.",
             .kernels = over_heads,
             .under = each_contract,
             .edges = put_settings},
    PlanList{.name = "calls",
             .adds = "The whole call as one chunk, and decoding behind caches of 0, 1, 2, 13 and all tokens, "
                     "under each contract",
             .why = "What a kernel carries from one call to the next is wrong in no case that is one call.",
             .under = each_contract,
             .edges = put_calls},
    PlanList{.name = "shapes under each contract",
             .adds = "The few shapes that the row of the system wants under every contract (PlanRows::every)",
             .why = "They are long and wide enough for the statistics of the twin, and packed batches with "
                    "empty sequences, sequences of one token and tokens of no sequence (BUGS M25, M37, M41).",
             .kernels = undivided | over_tokens,
             .under = each_contract,
             .edges = put_parts<&PlanRows::every>},

    PlanList{.name = "sizes",
             .adds = "Each size at its least, one above its start and twice its start; each value of a size "
                     "that ends at 16",
             .why = "A size that is no multiple of a vector or a tile leaves a rest, and kernels unroll "
                    "small ones by value.",
             .kernels = undivided,
             .under = two_contracts,
             .edges = put_sizes},
    PlanList{.name = "widths between powers of two",
             .adds = "Each size at 48, 96 and 192",
             .why = "Models have such widths, whose last tile is partly filled; of one key or token a wrong "
                    "scale does not show.",
             .kernels = undivided,
             .under = two_contracts,
             .most = 0.2,
             .edges = put_widths_between_tiles},
    PlanList{.name = "head groups",
             .adds = "3, 5, 6 and 7 groups of two and of three heads, by every map of heads",
             .why = "A map from value heads to key heads that is wrong for odd counts, or counts that are no "
                    "power of two, is right for the counts that most tests have.",
             .kernels = undivided,
             .under = two_contracts,
             .edges = put_head_groups},
    PlanList{.name = "reciprocals",
             .adds = "2 groups of 41 heads and 41 groups of 2, by every map of heads",
             .why = "41 is the first divisor whose quotient by an fp32 reciprocal is too small by one.",
             .kernels = undivided,
             .under = two_contracts,
             .most = 1.5,
             .edges = put_reciprocals},
    PlanList{.name = "settings",
             .adds = "Every value of every key, alone, in a batch of two and decoded in that batch",
             .why = "A setting that one path of a kernel ignores shows in the cases of that path alone.",
             .kernels = undivided | over_tokens,
             .under = two_contracts,
             .edges = put_settings},
    PlanList{.name = "chunks",
             .adds = "Chunks of 1 to 64 tokens alone and several of them; of the recurrent family chunks of "
                     "160 and 256 whose decays let the last token see the first",
             .why = "Chunks that are no power of two, and products across more than 128 rows of a chunk, are "
                    "in no shorter one.",
             .kernels = undivided,
             .under = two_contracts,
             .edges = put_chunks},
    PlanList{.name = "shapes",
             .adds = "Shapes and settings that the row of the system lists (PlanRows::shapes)",
             .why = "Layouts, packed batches and offsets beyond 32 bits (BUGS M38) go wrong beside widths "
                    "and head maps of models.",
             .kernels = undivided,
             .under = two_contracts,
             .edges = put_parts<&PlanRows::shapes>},
    PlanList{.name = "shapes over ranks",
             .adds = "Shapes, cuts and numbers of ranks that the row of the system lists (PlanRows::ranks)",
             .why = "Sequences that begin inside a rank, end at a cut or leave a rank without tokens are in "
                    "no case of one rank.",
             .kernels = over_tokens,
             .under = two_contracts,
             .edges = put_parts<&PlanRows::ranks>},
    PlanList{.name = "shapes of divided heads",
             .adds = "Shapes and numbers of ranks that the row of the system lists (PlanRows::heads)",
             .why = "Ranks without heads, and ranks whose heads are of two groups, read and write rows of "
                    "others where they are wrong.",
             .kernels = over_heads,
             .under = two_contracts,
             .edges = put_parts<&PlanRows::heads>},
    PlanList{.name = "regimes",
             .adds = "Each regime of the data",
             .why = "Overflow, cancellation and clipping need the values that a regime draws.",
             .under = two_contracts,
             .edges = put_regimes},
    PlanList{.name = "laws",
             .adds = "Each law of the system",
             .why = "A law finds what is wrong in one of two runs that ought to agree, without any tolerance "
                    "of its own.",
             .under = two_contracts,
             .edges = put_laws},

    PlanList{.name = "shapes under one contract",
             .adds = "Shapes that the row of the system lists to be tried once (PlanRows::limits)",
             .why = "Grids, offsets and lists in shared memory overflow at counts of their own, and a "
                    "model's heads in a batch are affordable where the other widths of the layer are small.",
             .kernels = undivided,
             .edges = put_parts<&PlanRows::limits>},
    PlanList{.name = "long caches",
             .adds = "A batch of two behind a cache of 519 tokens, with few of each size",
             .why = "A cache of more tokens than a block has threads takes a second round of a loop that "
                    "shorter ones never enter.",
             .kernels = undivided,
             .most = 8.0,
             .edges = put_long_cache},
    PlanList{.name = "caches that end at a tile",
             .adds = "Tokens decoded one at a time across the ends of tiles of 64 and 128 tokens",
             .why = "The first token of a new tile is written where the last tile ended.",
             .kernels = undivided,
             .most = 2.0,
             .edges = put_cache_at_tile_end},
    PlanList{.name = "many tokens",
             .adds = "65,537 tokens, of named tensors whose tokens do not meet",
             .why = "More tokens than 16 bits count exceed the second dimension of a grid.",
             .kernels = undivided,
             .most = 8.0,
             .edges = put_many_tokens},
    PlanList{.name = "beyond tiles",
             .adds = "Every size beyond a tile at once, as far as the work allows, in nine pairs of width "
                     "and tokens; short ones called twice, and with each switch turned",
             .why = "What only the second tile of two widths does, or the tile of one behind many tokens, is "
                    "in no pair.",
             .kernels = undivided,
             .most = 1.5,
             .edges = put_beyond_tiles},
    PlanList{
        .name = "second sequence beyond tiles",
        .adds =
            "Two sequences of which every size is beyond a tile, under two contracts and split in two calls",
        .why = "A grid that counts sequences, tiles of tokens and tiles of channels in one number, or in "
               "another order, is right for the first sequence.",
        .kernels = undivided,
        .most = 3.0,
        .edges = put_second_sequence},
    PlanList{.name = "beyond tiles behind a cache",
             .adds = "Two tokens behind a cache of 519, with every size beyond a tile",
             .why = "Decoding has code of its own for heads of several tiles and caches of several blocks.",
             .kernels = undivided,
             .most = 6.0,
             .edges = put_beyond_cache},
    PlanList{
        .name = "full chunks",
        .adds = "Ten chunks from 31 to 256 tokens, one whole call of each and two chunks and a token, with "
                "data whose last token still sees the first",
        .why = "What goes wrong between two tiles of one chunk, far apart, is in no chunk that ends early.",
        .kernels = undivided,
        .most = 1.2,
        .edges = put_full_chunks},
    PlanList{
        .name = "wide calls",
        .adds = "Each width of a model at 64, 128 and 256 behind several tiles of tokens, with few of each "
                "other size",
        .why = "An adversary's bugs survived that acted at one model's width behind several tiles of tokens.",
        .kernels = undivided,
        .most = 2.0,
        .edges =
            [](EdgeCases& to, const Case& base, double most) {
              for (Case& c : wide_calls(to.kernel(), base, most)) to.put(std::move(c));
            }},
    PlanList{.name = "regimes of family calls",
             .adds = "Each regime in whole chunks, several chunks and packed sequences of models' widths, of "
                     "the recurrent family",
             .why = "What overflows, cancels or is clipped only among many tokens is in no pair of a regime "
                    "and a size.",
             .kernels = undivided,
             .edges = put_family_regimes},
    PlanList{.name = "regimes beyond tiles",
             .adds = "Each regime in several chunks, in one chunk that is the whole call and in rows as wide "
                     "as a model's, of named tensors",
             .why = "What overflows, cancels or is clipped only among many values is in no pair of a regime "
                    "and a size.",
             .kernels = undivided,
             .most = 0.8,
             .edges = put_regimes_beyond_tiles},
    PlanList{.name = "family calls",
             .adds = "Calls of the recurrent family with two or three sizes of a model together, each under "
                     "one contract in turn",
             .why = "An adversary's bugs survived that need two or three medium sizes at once: a width and a "
                    "chunk, a long sequence among short ones.",
             .kernels = undivided,
             .edges = put_calls_tried<FamilyCall::Tried::one_contract>},
    PlanList{
        .name = "models",
        .adds = "Sizes of public models that the row of the system lists (PlanRows::models), under two "
                "contracts and with as many tokens as the work allows",
        .why =
            "The sizes with which a kernel is called outside of tests are sizes that its gate has to have.",
        .kernels = undivided,
        .most = 8.0,
        .edges = put_models},
    PlanList{.name = "decoded models",
             .adds = "Two tokens of each of these models behind as long a prompt as the work allows",
             .why = "Decoding chooses its code by the widths of a model's heads.",
             .kernels = undivided,
             .most = 2.0,
             .edges = put_decoded_models},
    PlanList{.name = "repeated model",
             .adds = "The first of these models called twice, with 70 tokens or more",
             .why = "What a kernel keeps by shape from call to call it may keep of a large shape alone.",
             .kernels = undivided,
             .most = 2.0,
             .edges = put_repeated_model},

    PlanList{
        .name = "pairs",
        .adds = "Cases that together have each boundary of each size and each pair of levels of two factors",
        .why = "Most faults that no single choice shows hang on two.",
        .share = kCovering,
        .turns = [](KernelTurns& of) { return of.pairs(); }},
    PlanList{
        .name = "triples of coarse levels",
        .adds = "Cases that together have each triple of coarse levels: a choice as cases begin or another, "
                "a size up to a tile or beyond it",
        .why =
            "Kernels branch on three such choices together: a second sequence, its second tile, a wide head.",
        .share = kCovering,
        .turns = [](KernelTurns& of) { return of.coarse_triples(); },
        .joins = true},
    PlanList{.name = "dear pairs",
             .adds = "Cases of the pairs of levels that no case of a usual plan affords",
             .why = "Two large sizes together, as of an attention, are in no case of a tenth of a second.",
             .share = kWholeTriples,
             .turns = [](KernelTurns& of) { return of.dear_pairs(); }},
    PlanList{.name = "triples",
             .adds = "Cases that together have each triple of levels of three factors",
             .why = "A fault that hangs on three choices is met by pairs through chance alone.",
             .share = kWholeTriples,
             .turns = [](KernelTurns& of) { return of.triples(); }},
    PlanList{
        .name = kDrawnList,
        .adds = "Cases of which every factor is drawn, larger ones later",
        .why = "Faults that hang on more than three choices, or on values of data, are met by chance alone.",
        .share = "half of what edges and pairs leave of the first half of the kernel's time, and what calls "
                 "leave of the second",
        .turns = [](KernelTurns& of) { return of.drawn(); }},
    PlanList{.name = "ordinary calls",
             .adds = "Calls of public models as programs train and serve them: model, kind of call, tokens, "
                     "data and settings take turns or are drawn",
             .why = "Two strangers' bugs survived at sizes of models that never met in one case.",
             .share = "the rest of the kernel's time, which is half of it or more",
             .turns = [](KernelTurns& of) { return of.ordinary_calls(); }},
};

}  // namespace

std::string PlanList::text() const { return fmt::format("{} ({}). {}", adds, share, why); }

std::span<const PlanList> plan_lists() { return kLists; }

const PlanList& plan_list(std::string_view name) {
  const auto found = std::ranges::find(kLists, name, &PlanList::name);
  if (found == kLists.end()) throw Error(fmt::format("plan list '{}': there is no such list", name));
  return *found;
}

}  // namespace samestate
