#include "harness/processes/rank_messages.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

/// Appends to a text: numbers as they lie in memory, a text or a list after its length.
struct Writer {
  std::string out = {};

  template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
  void operator()(const Number& x) {
    const std::size_t at = out.size();
    out.resize(at + sizeof x);
    std::memcpy(out.data() + at, &x, sizeof x);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<std::uint64_t>(text.size()));
    out += text;
  }
};

struct Reader {
  std::string_view left;

  std::string_view take(std::uint64_t bytes) {
    if (bytes > left.size()) throw Error("a damaged message of a rank: it ends within a field");
    const std::string_view taken = left.substr(0, bytes);
    left.remove_prefix(bytes);
    return taken;
  }
  template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
  void operator()(Number& x) { std::memcpy(&x, take(sizeof x).data(), sizeof x); }
  void operator()(std::string& text) {
    std::uint64_t bytes = 0;
    (*this)(bytes);
    text = take(bytes);
  }
};

template <class M, class Of>
concept Message = std::is_same_v<std::remove_const_t<M>, Of>;

// Each message has one function that visits its fields, for writing as well as for reading.

template <class Visit, class List, class Each>
void visit_list(Visit& visit, List& list, Each&& each) {
  std::uint64_t count = list.size();
  visit(count);
  if constexpr (std::is_same_v<Visit, Reader>) {
    if (count > visit.left.size()) throw Error("a damaged message of a rank: a list beyond its end");
    list.resize(count);
  }
  for (auto& one : list) each(one);
}

template <class Visit, Message<RankHello> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.build);
  visit(m.command);
  visit(m.where);
  visit(m.refused);
}

template <class Visit, Message<RankBegin> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.run);
  visit(m.options.workers);
  visit(m.options.timeout);
  visit(m.options.memory);
  visit(m.options.threads);
  visit(m.options.apart);
  visit(m.options.confirm);
  visit(m.interval);
}

template <class Visit, Message<RankPiece> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.run);
  visit_list(visit, m.jobs, [&](auto& job) {
    visit(job.index);
    visit(job.text);
    visit(job.subject);
    visit(job.fresh);
    visit(job.work);
    visit(job.device);
  });
}

template <class Visit, Message<RankRecall> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.run);
}

template <class Visit, Message<RankReport> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.run);
  visit(m.wants);
  visit_list(visit, m.started, visit);
  visit_list(visit, m.done, [&](auto& done) {
    visit(done.index);
    auto& result = done.result;
    visit(result.kind);
    visit(result.text);
    visit(result.how);
    visit(result.reason);
    visit_list(visit, result.beside, visit);
    visit(result.seconds);
    visit(result.process);
    visit(result.order);
    visit(result.device);
  });
  visit_list(visit, m.returned, visit);
}

template <class Visit, Message<RankFailure> M>
void visit_fields(Visit& visit, M& m) {
  visit(m.error);
}

/// Reads the message that is the variant's alternative `kind`.
template <std::size_t I = 0>
RankMessage read_as(std::size_t kind, Reader& reader) {
  if constexpr (I < std::variant_size_v<RankMessage>) {
    if (kind != I) return read_as<I + 1>(kind, reader);
    std::variant_alternative_t<I, RankMessage> message;
    visit_fields(reader, message);
    return message;
  } else {
    throw Error("a damaged message of a rank: no such kind");
  }
}

}  // namespace

std::string text_of_message(const RankMessage& message) {
  Writer writer;
  writer(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& m) { visit_fields(writer, m); }, message);
  return std::move(writer.out);
}

RankMessage parse_message(std::string_view text) {
  Reader reader{text};
  std::uint8_t kind = 0;
  reader(kind);
  RankMessage message = read_as(kind, reader);
  if (!reader.left.empty()) throw Error("a damaged message of a rank: there are bytes after its end");
  return message;
}

}  // namespace samestate
