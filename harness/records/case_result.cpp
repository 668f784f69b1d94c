#include "harness/records/case_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

/// Visits the numbers of a judgement in the order of the line.
template <class J, class Visit>
void each_number(J& j, Visit&& visit) {
  for (auto* x :
       {&j.ratio, &j.error, &j.bound, &j.expected, &j.actual, &j.row_ratio, &j.head_ratio, &j.state_ratio,
        &j.hard_ratio, &j.twin_ratio, &j.median_ratio, &j.relative_rms, &j.sampled_ratio}) {
    visit(*x);
  }
}
template <class J, class Visit>
void each_place(J& j, Visit&& visit) {
  for (auto* x :
       {&j.worst.sequence, &j.worst.head, &j.worst.token, &j.worst.channel, &j.rows, &j.held, &j.held_of})
    visit(*x);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      out += c;
    }
  }
  return out;
}

std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char c = ++i < text.size() ? text[i] : ' ';
    if (c == '\\') {
      out += '\\';
    } else if (c == 't') {
      out += '\t';
    } else if (c == 'n') {
      out += '\n';
    } else if (c == 'r') {
      out += '\r';
    } else {
      throw Error("damaged text field");
    }
  }
  return out;
}

std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return fmt::format("{:a}", x);
}

double real_of(std::string_view text) {
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  double x = 0.0;
  if (!text.starts_with("0x")) throw Error("damaged number");
  text.remove_prefix(2);
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), x, std::chars_format::hex);
  // A value that underflows is still the number that was written: from_chars reports an error for subnormal
  // numbers.
  if (end != text.data() + text.size() || text.empty() || error == std::errc::invalid_argument) {
    throw Error("damaged number");
  }
  return negative ? -x : x;
}

template <class Integer>
Integer integer_of(std::string_view text) {
  Integer x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) throw Error("damaged count");
  return x;
}

Verdict verdict_named(std::string_view name) {
  for (const Verdict v : kVerdicts) {
    if (name_of(v) == name) return v;
  }
  throw Error("damaged verdict");
}

/// Writes stage|verdict|ratio|gate, separated by ';'; no name contains either character.
std::string stages_text(const std::vector<StageFinding>& stages) {
  std::string out;
  for (const StageFinding& s : stages)
    out += fmt::format("{}{}|{}|{}|{}", out.empty() ? "" : ";", s.stage, name_of(s.verdict),
                       real_text(s.ratio), s.gate);
  return out;
}

std::vector<StageFinding> stages_of(std::string_view text) {
  std::vector<StageFinding> out;
  while (!text.empty()) {
    std::string_view one = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    std::array<std::string_view, 4> parts;
    for (std::string_view& part : parts) {
      part = one.substr(0, one.find('|'));
      one.remove_prefix(std::min(part.size() + 1, one.size()));
    }
    if (!one.empty() || parts[0].empty()) throw Error("damaged stage");
    out.push_back({std::string(parts[0]), verdict_named(parts[1]), real_of(parts[2]), std::string(parts[3])});
  }
  return out;
}

/// Older checkpoints lack the last fields: gpu, outputs, ran_by, spent, tuned and policy, or those after the
/// second, third, fourth or fifth of them.
constexpr std::size_t kFieldsBefore = 1 + 1 + 13 + 7 + 1 + 1 + 1 + 2 + 1;
constexpr std::size_t kFields = kFieldsBefore + 6;
constexpr std::array kLengths = {kFieldsBefore,     kFieldsBefore + 2, kFieldsBefore + 3,
                                 kFieldsBefore + 4, kFieldsBefore + 5, kFields};

}  // namespace

std::string result_text(const CaseResult& finding) {
  const Judgement& j = finding.judgement;
  std::string out = std::string(name_of(j.verdict)) + '\t' + escaped(j.gate);
  each_number(j, [&](double x) { out += '\t' + real_text(x); });
  each_place(j, [&](std::int64_t x) { out += '\t' + std::to_string(x); });
  out += '\t' + real_text(finding.seconds) + '\t' + std::to_string(finding.edges) + '\t' +
         escaped(j.held_which) + '\t' + escaped(j.stage) + '\t' + escaped(stages_text(j.stages)) + '\t' +
         escaped(j.reason) + '\t' + escaped(finding.gpu) + '\t' + escaped(finding.outputs) + '\t' +
         escaped(finding.ran_by) + '\t' + spent_text(finding.spent) + '\t' + escaped(finding.tuned) + '\t' +
         escaped(finding.policy);
  return out;
}

CaseResult parse_result(std::string_view text) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t tab = text.find('\t');
    fields.push_back(text.substr(0, tab));
    if (tab == std::string_view::npos) break;
    text.remove_prefix(tab + 1);
  }
  if (std::ranges::find(kLengths, fields.size()) == kLengths.end()) {
    throw Error(fmt::format("{} fields instead of {}", fields.size(), kFields));
  }
  CaseResult finding;
  Judgement& j = finding.judgement;
  std::size_t at = 0;
  j.verdict = verdict_named(fields[at++]);
  j.gate = plain(fields[at++]);
  each_number(j, [&](double& x) { x = real_of(fields[at++]); });
  each_place(j, [&](std::int64_t& x) { x = integer_of<std::int64_t>(fields[at++]); });
  finding.seconds = real_of(fields[at++]);
  finding.edges = integer_of<std::uint64_t>(fields[at++]);
  j.held_which = plain(fields[at++]);
  j.stage = plain(fields[at++]);
  j.stages = stages_of(plain(fields[at++]));
  j.reason = plain(fields[at++]);
  if (at == fields.size()) return finding;
  finding.gpu = plain(fields[at++]);
  finding.outputs = plain(fields[at++]);
  if (at == fields.size()) return finding;
  finding.ran_by = plain(fields[at++]);
  if (at == fields.size()) return finding;
  finding.spent = parse_spent(fields[at++]);
  if (at == fields.size()) return finding;
  finding.tuned = plain(fields[at++]);
  if (at == fields.size()) return finding;
  finding.policy = plain(fields[at++]);
  return finding;
}

}  // namespace samestate
