#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// A kernel's numerics card as read from its outputs, as plain data for reports.
namespace samestate {

/// One value that a rounding point might have besides the one found.
struct CardValue {
  std::string value;
  double factor =
      0.0;  ///< the distance to the twin with it divided by that with the card, on the most telling probe
  std::string probe;  ///< that probe
};

/// One rounding point.
struct CardPoint {
  std::string name;
  std::string means;
  std::string value;     ///< the value found
  double without = 0.0;  ///< the smallest factor among other values that can be distinguished; 0 if none can
  std::string probe;     ///< the probe that showed it
  std::vector<CardValue> like;  ///< values that cannot be distinguished from it
  std::string why;              ///< why they cannot, or why nothing is known about the point
  bool told = false;            ///< every other value is at least kCardToldApart times as far away
  bool likely = false;          ///< the next value is closer than that: an indication but no proof
};

/// The outputs of one probe compared with the twin's.
struct CardProbe {
  std::string name;
  std::string line;            ///< its sizes and settings as a case line; its data are defined by the probe
  std::string refused;         ///< why the kernel did not run it; empty if it did
  double distance = 0.0;       ///< relative distance to the twin under the card, the worse of o and state
  double error = 0.0;          ///< the twin's own relative error, for the same tensor
  double left = 0.0;           ///< distance over error
  bool explained = true;       ///< what is left is explained by the card, or by the order of sums
  std::string nonfinite = {};  ///< the first element that is not finite, and its possible origin
};

/// A case of the gate, judged under the card.
struct CardCase {
  std::string line;
  std::string verdict;
  double twin = 0.0;      ///< relative to the twin's limit
  double ratio = 0.0;     ///< relative to the limit of the gate that decided
  std::string gate = {};  ///< the gate that decided, for example "twin row", "element", "law merge"
};

struct CardRow {
  std::string kernel, system, form;
  std::string declared;  ///< the contract that the kernel was called with
  std::string contract;  ///< the contract found, ready to be pasted
  std::vector<CardPoint> points;
  std::vector<CardProbe> probes;
  std::vector<CardCase> cases;
  std::int64_t cases_planned = 0;  ///< larger than the number of cases after an interrupt
  double farthest = 0.0;           ///< the largest distance over error among the probes
  std::string worst = {};          ///< the probe with that value
  /// If only data that are rounded first explain the outputs: the format to which the kernel rounds q, k and
  /// v when it loads them.
  std::string loads = {};
  /// If only data explain the outputs in which just these tensors are rounded first ("v", and the format),
  /// and no contract does. The grammar cannot express this.
  std::string loads_alone = {}, loads_alone_format = {};
  /// Operands that the grammar rounds once although kernels may round them twice, or the reverse; for a card
  /// that does not explain everything.
  std::vector<std::string> twice = {};
  std::int64_t twins = 0;  ///< twins evaluated
  double seconds = 0.0;
  std::string stopped;     ///< why the search ended early; empty if it did not
  bool explained = false;  ///< the card explains what the probes show
};

}  // namespace samestate
