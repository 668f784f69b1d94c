#pragma once

/// The fields of a timing in JSON, both for a line of a record and for a digest. Private to json_lines.cpp
/// and digest.cpp.
namespace samestate {

/// Calls visit(name, field) for each member except the record.
template <class AnyTiming, class Visit>
void visit_timing(AnyTiming& t, Visit&& visit) {
  visit("B", t.B);
  visit("T", t.T);
  visit("Hk", t.Hk);
  visit("Hv", t.Hv);
  visit("dk", t.dk);
  visit("dv", t.dv);
  visit("chunk", t.chunk);
  visit.unless_empty("sizes", t.sizes);
  visit.unless_zero("ranks", t.ranks);
  visit.unless_empty("cuts", t.cuts);
  visit("heads", t.heads);
  visit("heads_judged", t.heads_judged);
  visit("timed", t.timed);
  visit("time", t.time);
  visit("calls_per_sample", t.calls_per_sample);
  visit("copies", t.copies);
  visit.unless_empty("variant", t.variant);
  visit.unless_nan("clock", t.clock);
  visit.unless_nan("power", t.power);
  visit.unless_empty("slowed", t.slowed);
  visit("bytes", t.bytes);
  visit("operations", t.operations);
  visit("copy_rate", t.copy_rate);
  visit("product_rate", t.product_rate);
  visit("ceilings", t.ceilings);
  visit("memory_floor", t.memory_floor);
  visit("compute_floor", t.compute_floor);
  visit("share", t.share);
  visit("peer", t.peer);
  visit("peer_note", t.peer_note);
  visit("peer_time", t.peer_time);
  visit("peer_ratio", t.peer_ratio);
}

}  // namespace samestate
