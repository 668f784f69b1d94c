#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/run/run_case.h"
#include "tests/harness/planted.h"

/// Fields of a call that ordinary calls leave as they are (optimized/kernel.h): each with a kernel that is
/// right but for one value of it.
namespace samestate {
namespace {

using faulty::after;
using faulty::before;
using faulty::Fault;
using faulty::planted_table;

constexpr const char* kFieldsCase =
    "v1 gated_delta_rule chunk=16 B=2 T=33 Hk=2 Hv=4 dk=16 dv=8 state=random "
    "kernel=planted.gated_delta_rule.chunked ";
constexpr const char* kPacked =
    "v1 gated_delta_rule form=packed chunk=16 lengths=17,0,20 Hk=2 Hv=4 dk=16 dv=8 state=random "
    "kernel=planted.gated_delta_rule.chunked ";

TEST(CallFields, TokensOfNoSequenceAreNeitherReadNorWritten) {
  const std::string line = std::string(kPacked) + "unowned=3,5 ";
  const Fault sees = before([](Arguments& a) {
    EXPECT_EQ(a.q.shape[1], 45);
    EXPECT_EQ(a.cu_seqlens(0), 3);
    EXPECT_EQ(a.cu_seqlens(3), 40);
    for (const std::int64_t t : {0, 2, 40, 44}) {
      EXPECT_TRUE(std::isnan(a.q(0, t, 1, 2)) && std::isnan(a.g(0, t, 3)) && std::isnan(a.v(0, t, 0, 7)))
          << t;
    }
  });
  const auto all = [&](const Fault& fault, const std::string& keys) {
    return run_case(parse_case(line + keys), planted_table(fault)).judgement;
  };
  for (const std::string_view layout : layout_names()) {
    const std::string keys = "layout=" + std::string(layout);
    EXPECT_EQ(all(sees, keys).verdict, Verdict::pass) << layout;
    // The same data as without them.
    EXPECT_EQ(all(sees, keys).ratio,
              run_case(parse_case(kPacked), planted_table(faulty::undamaged)).judgement.ratio);
    for (const std::int64_t t : {0, 2, 40, 44}) {
      const Judgement j = all(after([&](const Arguments& a) { a.o(0, t, 3, 7) = 0.0F; }), keys);
      EXPECT_EQ(j.gate, "memory") << layout << t;
      EXPECT_NE(j.reason.find("belongs to no sequence"), std::string::npos) << j.reason;
    }
  }
}

TEST(CallFields, AFinalStateIsNotAskedForOrInPlace) {
  const auto verdict = [](const Fault& fault, const char* keys) {
    return run_case(parse_case(std::string(kFieldsCase) + keys), planted_table(fault, fault))
        .judgement.verdict;
  };
  int absent = 0, shared = 0;
  const Fault counted = before([&](Arguments& a) {
    absent += !a.final_state.present();
    shared += a.final_state.present() && a.final_state.data == a.initial_state.data;
  });
  for (const char* keys : {"", "law=split", "law=serving", "form=decode prefill=30"}) {
    absent = shared = 0;
    EXPECT_EQ(verdict(counted, keys), Verdict::pass);
    EXPECT_EQ(absent, 0) << keys;
    EXPECT_EQ(verdict(counted, (std::string(keys) + " final=none").c_str()), Verdict::pass);
    EXPECT_GT(absent, 0) << keys;
    shared = 0;
    EXPECT_EQ(verdict(counted, (std::string(keys) + " final=in_place").c_str()), Verdict::pass);
    EXPECT_GT(shared, 0) << keys;
  }
  const Fault needs_it = after([](const Arguments& a) {
    if (!a.final_state.present()) a.o(1, 32, 3, 7) += 1.0F;
  });
  EXPECT_EQ(verdict(needs_it, ""), Verdict::pass);
  EXPECT_EQ(verdict(needs_it, "final=none"), Verdict::fail);
  const Fault clears =
      before([](Arguments& a) { faulty::each(a.final_state, [](float& x, const auto&) { x = 0.0F; }); });
  EXPECT_EQ(verdict(clears, ""), Verdict::pass);
  EXPECT_EQ(verdict(clears, "final=in_place"), Verdict::fail);
}

/// The element of `x` that an offset of 32 bits reaches, counted in elements or in bytes.
template <class T, std::size_t Rank>
T& at_wrapped(const View<T, Rank>& x, const std::array<std::int64_t, Rank>& at, bool bytes) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < Rank; ++d) offset += at[d] * x.stride[d];
  return x.data[bytes ? static_cast<std::int64_t>(static_cast<std::uint32_t>(4 * offset)) / 4
                      : static_cast<std::int64_t>(static_cast<std::int32_t>(offset))];
}

template <auto tensor>
Fault reads_wrapped(bool bytes) {
  return [bytes](const Kernel& base, Arguments a, const Contract& c) {
    const auto x = a.*tensor;
    faulty::Copy copy(x, [&](float, const auto& at) { return at_wrapped(x, at, bytes); });
    a.*tensor = copy.view();
    return base.run(a, c);
  };
}

template <auto tensor>
Fault writes_wrapped(bool bytes) {
  return [bytes](const Kernel& base, Arguments a, const Contract& c) {
    const View<float, 4> x = a.*tensor;
    faulty::Copy<4> copy(x);
    a.*tensor = copy.view();
    const Outcome outcome = base.run(a, c);
    faulty::each(copy.view(), [&](float& value, const auto& at) { at_wrapped(x, at, bytes) = value; });
    return outcome;
  };
}

// 2^31 elements and 2^32 bytes, of every tensor, along its tokens or sequences and along the batch.
TEST(CallFields, OffsetsThatDoNotFit32BitsAreMetInEveryTensor) {
  const std::pair<const char*, Fault (*)(bool)> faults[] = {
      {"q", reads_wrapped<&Arguments::q>},       {"k", reads_wrapped<&Arguments::k>},
      {"v", reads_wrapped<&Arguments::v>},       {"g", reads_wrapped<&Arguments::g>},
      {"beta", reads_wrapped<&Arguments::beta>}, {"initial_state", reads_wrapped<&Arguments::initial_state>},
      {"o", writes_wrapped<&Arguments::o>},      {"final_state", writes_wrapped<&Arguments::final_state>},
  };
  for (const auto& [name, fault] : faults) {
    for (const bool bytes : {false, true}) {
      for (const std::string& line : {std::string(kFieldsCase), std::string(kPacked)}) {
        const auto verdict = [&](const char* layout) {
          return run_case(parse_case(line + layout), planted_table(fault(bytes))).judgement.verdict;
        };
        EXPECT_EQ(verdict(" layout=padded"), Verdict::pass) << name << bytes << line;
        EXPECT_EQ(verdict(" layout=far"), Verdict::fail) << name << bytes << line;
      }
    }
  }
}

/// The data that a fault remembers from earlier calls.
template <class Key>
Fault remembers(std::map<Key, std::vector<float>>& known, std::function<Key(const Arguments&)> key) {
  return [&known, key](const Kernel& base, Arguments a, const Contract& c) {
    std::vector<float> now;
    faulty::each(a.v, [&](const float& x, const auto&) { now.push_back(x); });
    std::vector<float>& then = known.try_emplace(key(a), now).first->second;
    if (then.size() != now.size()) then = now;
    auto from = then.begin();
    faulty::Copy<4> copy(a.v, [&](float, const auto&) { return *from++; });
    a.v = copy.view();
    return base.run(a, c);
  };
}

// In a process that ran nothing before, each of them is right but for the repetition.
TEST(CallFields, WhatIsKeptFromEarlierCallsShows) {
  const auto gate = [](const Fault& fault, const char* keys) {
    const Judgement j = run_case(parse_case(std::string(kFieldsCase) + keys), planted_table(fault)).judgement;
    return j.verdict == Verdict::fail ? j.gate : std::string(name_of(j.verdict));
  };
  std::map<const float*, std::vector<float>> by_address;
  std::map<std::int64_t, std::vector<float>> by_shape;
  for (const char* keys : {"", "repeat=1"}) {
    by_address.clear(), by_shape.clear();
    const bool passes = *keys == 0;
    EXPECT_EQ(gate(remembers<const float*>(by_address, [](const Arguments& a) { return a.v.data; }), keys) ==
                  "pass",
              passes);
    EXPECT_EQ(gate(remembers<std::int64_t>(by_shape, [](const Arguments& a) { return a.v.size(); }), keys) ==
                  "pass",
              passes);
    float scale = 0;
    EXPECT_EQ(
        gate(before([&](Arguments& a) { a.scale = scale == 0 ? scale = a.scale : scale; }), keys) == "pass",
        passes);
  }
  // Each call differs from the one before it by less than any bound.
  int calls = 0;
  const Fault drifts = after([&](const Arguments& a) {
    a.o(0, 5, 0, 0) = std::nextafter(a.o(0, 5, 0, 0), static_cast<float>(++calls % 2) * 1e3F);
  });
  EXPECT_EQ(gate(drifts, ""), "pass");
  EXPECT_EQ(gate(drifts, "repeat=1"), "repeat");
  // Offsets of packed sequences, kept by their address.
  std::map<const std::int64_t*, std::vector<std::int64_t>> offsets;
  const Fault table = before([&](Arguments& a) {
    if (!a.cu_seqlens.present()) return;
    std::vector<std::int64_t>& kept = offsets[a.cu_seqlens.data];
    for (std::int64_t n = 0; std::ssize(kept) < a.cu_seqlens.shape[0]; ++n) kept.push_back(a.cu_seqlens(n));
    a.cu_seqlens.data = kept.data();
  });
  for (const bool repeat : {false, true}) {
    offsets.clear();
    const Case c = parse_case(std::string(kPacked) + (repeat ? "repeat=1" : ""));
    EXPECT_EQ(run_case(c, planted_table(table)).judgement.verdict, repeat ? Verdict::fail : Verdict::pass);
  }
  // If some of the calls before it are refused, that does not matter.
  const Fault refuses = [&](const Kernel& base, const Arguments& a, const Contract& c) {
    if (a.q.shape[1] != 33) return Outcome{Outcome::Kind::unsupported, "T is not 33"};
    return base.run(a, c);
  };
  EXPECT_EQ(gate(refuses, "repeat=1"), "pass");
}

/// A fault that computes `field` once for all calls whose key, which has everything but it, is the same.
template <class Value>
Fault keyed_without(std::map<std::vector<double>, Value>& known, Value Arguments::*field) {
  return before([&known, field](Arguments& a) {
    std::vector<double> key{static_cast<double>(a.q.shape[1]), static_cast<double>(a.q.shape[2])};
    if (static_cast<const void*>(&(a.*field)) != &a.scale) key.push_back(a.scale);
    if (static_cast<const void*>(&(a.*field)) != &a.l2norm) key.push_back(a.l2norm ? 1.0 : 0.0);
    if (static_cast<const void*>(&(a.*field)) != &a.head_map)
      key.push_back(a.head_map == HeadMap::tiled ? 1.0 : 0.0);
    a.*field = known.try_emplace(key, a.*field).first->second;
  });
}

// The result of a cache keyed without one field shows in a single case, in a process that ran nothing before.
TEST(CallFields, ACacheWhoseKeyLacksAFieldShows) {
  const auto verdict = [](const Fault& fault, const std::string& keys) {
    return run_case(parse_case(std::string(kFieldsCase) + keys), planted_table(fault)).judgement.verdict;
  };
  const auto dies = [&](auto field, const std::string& keys = "") {
    using Value = std::remove_cvref_t<decltype(std::declval<Arguments>().*field)>;
    std::map<std::vector<double>, Value> known;
    EXPECT_EQ(verdict(keyed_without<Value>(known, field), keys), Verdict::pass) << "alone it is right";
    known.clear();
    EXPECT_EQ(verdict(keyed_without<Value>(known, field), keys + " repeat=1"), Verdict::fail);
  };
  {
    SCOPED_TRACE("scale");
    dies(&Arguments::scale);
  }
  {
    SCOPED_TRACE("head_map");
    dies(&Arguments::head_map);
  }
  {
    SCOPED_TRACE("l2norm");
    dies(&Arguments::l2norm, "l2norm=1");  // without it the rows that are drawn are normalised ones
  }
}

// A kernel that uses the scale of the call before fails in some of these cases, since the last of the calls between is drawn.
TEST(CallFields, TheScaleOfTheCallBeforeShowsInSomeCases) {
  int failed = 0;
  constexpr int kCases = 24;
  for (int seed = 0; seed < kCases; ++seed) {
    float before_it = 0.0F;
    const Fault late = before([&](Arguments& a) {
      const float own = a.scale;
      a.scale = before_it == 0.0F ? own : before_it;
      before_it = own;
    });
    const std::string line = kFieldsCase + fmt::format("repeat=1 seed={}", seed);
    failed += run_case(parse_case(line), planted_table(late)).judgement.verdict == Verdict::fail;
  }
  EXPECT_GT(failed, 1);
  EXPECT_LT(failed, kCases) << "other fields are the last as well";
}

}  // namespace
}  // namespace samestate
