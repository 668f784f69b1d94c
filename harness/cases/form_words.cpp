#include "harness/cases/form_words.h"

#include <array>

namespace samestate {
namespace {

constexpr std::array kRows = {
    FormWords{"chunked", "",
              "chunk= tokens at a time, by products of matrices; the state goes from chunk to chunk"},
    FormWords{"recurrent", "", "token by token, the state carried"},
    FormWords{"parallel", "", "all tokens as one chunk: the masked matrix of all scores"},
    FormWords{"sequence_parallel", "",
              "the tokens of a call divided among ranks= by cuts=: each rank makes the map S -> M S + N of "
              "its part from its tokens alone, the maps are composed in order, and the outputs follow from "
              "the states between the parts"},
    FormWords{"head_parallel", "",
              "the value heads of a call divided among ranks= by cuts=, each with a copy of the key head "
              "that serves it; a head has the same bits on any rank"},
    FormWords{"decode", "",
              "several calls that carry the state, or the keys and values so far: prefill= tokens in the "
              "first, then a call a token"},
    FormWords{"packed", "",
              "sequences of lengths= tokens behind one another in one row, each with a state of its own; "
              "cu_seqlens says where each begins"},
    FormWords{"scores_first", "", "(Q K^T) V: the scores of all pairs of tokens first"},
    FormWords{"state_first", "", "Q (K^T V): the state of all tokens first"},
    FormWords{"core", "", "the state of plain retention is carried, and what is read of it divided"},
    FormWords{"blelloch", "", "a scan by a balanced tree of pairs of tokens (Blelloch)"},
    FormWords{"equation", "", "as the equation is printed"},
    FormWords{"branchless", "", "max(x, 0) and e^-|x| where the equation asks for the sign of x"},
    FormWords{"fused", "", "one pass over a row for its sum and one for the rest"},
    FormWords{"fused", "gated_delta_net_output", "norm, gate and projection as one kernel"},
    FormWords{"separate", "",
              "norm, gate and projection one after the other, each writing what the next reads"},
    FormWords{"full_width", "",
              "the tables repeated over the columns of a head, all turned by one multiply-add a column"},
    FormWords{"gather", "", "each output sums the inputs that it sees"},
    FormWords{"scatter", "", "each input is added to the outputs that see it"},
    FormWords{"naive", "", "the softmax of all scores of a token at once"},
    FormWords{"naive", "latent_attention",
              "keys and values of all heads restored from the latent, then attention"},
    FormWords{"online", "",
              "tile by tile of chunk= keys: the softmax so far is rescaled where a larger score comes"},
    FormWords{"merged", "",
              "a softmax of each tile of chunk= keys alone, the tiles merged at the end, as decode kernels "
              "split keys"},
    FormWords{"grouped", "", "the query heads of a key head together, so that its keys are read once"},
    FormWords{"prefill", "", "of a whole prompt at once"},
    FormWords{"absorbed", "",
              "the key's map moved to the query and the value's behind the sum: one key head, the latent, "
              "serves all"},
    FormWords{"fully_absorbed", "",
              "as absorbed, the two maps merged into the query's and the output's projection beforehand"},
    FormWords{"expanded", "", "the state is held [dv, dk] and read before it decays, as serving kernels do"},
    FormWords{"gradient", "", "the gradient of the loss, then a step along it"},
    FormWords{"normal_equations", "", "the minimum by its normal equations, solved"},
    FormWords{"delta_rule", "", "the same step written as the delta rule's update of the state"},
    FormWords{"windows", "", "window by window"},
    FormWords{"channels", "", "channel by channel, from the windows that hold it"},
    FormWords{"softmax", "", "the softmax of all candidates, then the choice"},
    FormWords{"chosen", "", "the choice by the logits, then the weights of those chosen alone"},
    FormWords{"masked", "", "every branch on every token, zero where it was not chosen"},
    FormWords{"compacted", "", "every branch on its tokens alone, gathered"},
    FormWords{"direct", "", "as the equation is printed; there is one form"},
    FormWords{"probabilities_first", "", "the softmax of all experts, the K largest of it, renormalised"},
    FormWords{"logits_first", "", "the K largest logits, the softmax of those alone"},
    FormWords{"gathered", "",
              "group by group: the sum of each group's two largest choices, the experts of the best M groups "
              "gathered, of these the K largest"},
    FormWords{"ordered", "",
              "one descending order of all experts: the first two of a group give its score, the first K of "
              "groups that are kept are chosen"},
    FormWords{"loop", "", "over experts: gather the expert's tokens, apply it, scale, add back"},
    FormWords{"dense", "", "every expert on every token, with weight 0 where it was not chosen"},
    FormWords{"sorted", "", "assignments sorted by expert, a block of rows an expert, scattered back"},
    FormWords{"per_token", "", "over tokens, and the experts of each by rank"},
};

}  // namespace

bool lists(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t blank = list.find(' ');
    if (list.substr(0, blank) == name) return true;
    list = blank == list.npos ? std::string_view{} : list.substr(blank + 1);
  }
  return false;
}

std::span<const FormWords> form_words() { return kRows; }

std::string_view form_means(std::string_view system, std::string_view form) {
  std::string_view means;
  for (const FormWords& row : kRows) {
    if (row.name != form) continue;
    if (lists(row.systems, system)) return row.means;
    if (row.systems.empty()) means = row.means;
  }
  return means;
}

}  // namespace samestate
