#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// A kernel's numerics card as it was read from its outputs, as plain data: reports read it.
namespace samestate {

/// One value that a rounding point might have beside the one found.
struct CardValue {
  std::string value;
  double factor =
      0.0;  ///< the distance to the twin with it over that with the card, on the probe that shows most
  std::string probe;  ///< that one
};

/// One rounding point.
struct CardPoint {
  std::string name;
  std::string means;
  std::string value;            ///< found
  double without = 0.0;         ///< least factor of another value that can be told apart; 0: none can
  std::string probe;            ///< on which it was
  std::vector<CardValue> like;  ///< values that cannot be told apart from it
  std::string why;              ///< of these; or why nothing is known of the point
  bool told = false;            ///< every other value is at least kCardToldApart times farther
  bool likely = false;          ///< the next other value is fewer times farther than that: a sign, no proof
};

/// The outputs of one probe beside the twin's.
struct CardProbe {
  std::string name;
  std::string line;            ///< its sizes and settings as a case line; the data are the probe's own
  std::string refused;         ///< why the kernel did not run it; empty: it did
  double distance = 0.0;       ///< relative distance to the twin under the card, the worse of o and state
  double error = 0.0;          ///< the twin's own relative error, of the same
  double left = 0.0;           ///< distance over error
  bool explained = true;       ///< what is left is no more than a card explains, or than orders of sums make
  std::string nonfinite = {};  ///< the first element that is no finite number, and what it may come from
};

/// A case of the gate under the card.
struct CardCase {
  std::string line;
  std::string verdict;
  double twin = 0.0;      ///< of the twin's limit
  double ratio = 0.0;     ///< of the limit of what decided
  std::string gate = {};  ///< that decided, as "twin row", "element", "law merge"
};

struct CardRow {
  std::string kernel, system, form;
  std::string declared;  ///< contract that the kernel was called with
  std::string contract;  ///< found, to be pasted
  std::vector<CardPoint> points;
  std::vector<CardProbe> probes;
  std::vector<CardCase> cases;
  std::int64_t cases_planned = 0;  ///< more than there are: an interrupt
  double farthest = 0.0;           ///< of the probes: distance over error; of the probe where it is largest
  std::string worst = {};          ///< that probe
  /// Where only data rounded before explain the outputs: the format to which the kernel rounds q, k and v as it loads them.
  std::string loads = {};
  /// Where data of which only these tensors were rounded before explain the outputs, and no contract does: "v", and the
  /// format. The grammar has no word for it.
  std::string loads_alone = {}, loads_alone_format = {};
  /// Operands that the grammar rounds once where kernels may round twice, or the other way; of a card that explains not all.
  std::vector<std::string> twice = {};
  std::int64_t twins = 0;  ///< evaluated
  double seconds = 0.0;
  std::string stopped;     ///< why the search ended before it was done; empty: it did not
  bool explained = false;  ///< the card explains what the probes show
};

}  // namespace samestate
