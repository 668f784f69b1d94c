#include "measure/bench/peer.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "fixtures/quote.h"
#include "harness/run/judge_batch.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostTimes = 100'000;
constexpr std::size_t kLongestText = 200;
constexpr int kMostStarts = 3;

/// Returns a text of the peer, cleaned for one line of a table.
std::string tidy(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return "";
  std::string text = found->get<std::string>().substr(0, kLongestText);
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text;
}

PeerAnswer problem(std::string text) {
  PeerAnswer answer;
  answer.problem = std::move(text);
  return answer;
}

}  // namespace

std::string peer_request(std::int64_t id, const Case& c, double seconds) {
  const Json request = {
      {"id", id},
      {"line", format_case(c)},
      {"seconds", seconds},
      {"system", c.system},
      {"form", c.form},
      {"chunk", c.chunk},
      {"B", c.B},
      {"T", c.T},
      {"Hk", c.Hk},
      {"Hv", c.Hv},
      {"dk", c.dk},
      {"dv", c.dv},
      {"sizes", std::map<std::string, std::int64_t>(c.parameters.begin(), c.parameters.end())},
      {"lengths", c.lengths},
      {"heads", c.heads == HeadMap::tiled ? "tiled" : "interleaved"},
      {"l2norm", c.l2norm},
      {"scale", batch_shape_of(Resolved(c)).scale},
      {"contract", c.contract},
      {"state", c.state}};
  return request.dump();
}

PeerAnswer parse_peer_answer(std::int64_t id, const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string shown = quote(line.substr(0, 60));
  if (!json.is_object()) return problem(fmt::format("its answer {} is not a JSON object", shown));
  if (!json.contains("id") || json["id"] != id)
    return problem(fmt::format("its answer {} lacks \"id\": {}", shown, id));
  PeerAnswer answer;
  answer.note = tidy(json, "note");
  answer.unsupported = tidy(json, "unsupported");
  if (json.contains("unsupported")) {
    if (answer.unsupported.empty()) return problem("its \"unsupported\" gives no reason");
    return answer;
  }
  answer.kernel = tidy(json, "kernel");
  if (answer.kernel.empty()) return problem(fmt::format("its answer {} names no \"kernel\"", shown));
  const auto seconds = json.find("seconds");
  if (seconds == json.end() || !seconds->is_array() || seconds->empty() || seconds->size() > kMostTimes)
    return problem(fmt::format("its \"seconds\" is not an array of 1 to {} numbers", kMostTimes));
  for (const Json& value : *seconds) {
    const double time = value.is_number() ? value.get<double>() : 0.0;
    if (!(time > 0.0) || !std::isfinite(time))
      return problem(
          fmt::format("its \"seconds\" contains {}, which is not a time above 0", quote(value.dump())));
    answer.seconds.push_back(time);
  }
  return answer;
}

Peer::Peer(std::string command, double timeout_seconds)
    : command_(std::move(command)), timeout_(timeout_seconds) {
  start();
}

void Peer::start() {
  ++starts_;
  process_ = LineProcess::start(command_, "--peer");
}

PeerAnswer Peer::ask(const Case& c, double seconds) {
  if (!process_.open() && starts_ == kMostStarts)
    return problem(fmt::format("not asked: it failed {} times", kMostStarts));
  if (!process_.open()) start();
  const std::int64_t id = ++id_;
  LineProcess::Said said = process_.send(peer_request(id, c, seconds), timeout_);
  if (said.wrong.empty()) said = process_.receive(timeout_);
  if (said.kind == LineProcess::Said::Kind::late) said.wrong += " (--peer-timeout)";
  PeerAnswer answer = said.wrong.empty() ? parse_peer_answer(id, said.line) : problem(said.wrong);
  // After such an answer its next one cannot be predicted.
  if (!answer.problem.empty()) process_.stop(true);
  return answer;
}

}  // namespace samestate
