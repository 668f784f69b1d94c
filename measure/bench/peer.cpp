#include "measure/bench/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "fixtures/quote.h"
#include "harness/run/judge_batch.h"
#include "reference/error.h"

extern char** environ;  // NOLINT: POSIX gives no header for it

namespace samestate {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = std::size_t{1} << 22;
constexpr std::size_t kMostTimes = 100'000;
constexpr std::size_t kLongestText = 200;
constexpr int kMostStarts = 3;
constexpr const char* kEnded = "it ended, or closed its output";

/// A text of the peer, for one line of a table.
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

/// Milliseconds until `end`, for poll.
int left(Clock::time_point end) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 1'000'000'000));
}

}  // namespace

std::string peer_request(std::int64_t id, const Case& c, double seconds) {
  const Json request = {{"id", id},
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
                        {"sizes", c.parameters},
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
  if (!json.is_object()) return problem(fmt::format("its answer {} is no JSON object", shown));
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
    return problem(fmt::format("its \"seconds\" is no array of 1 to {} numbers", kMostTimes));
  for (const Json& value : *seconds) {
    const double time = value.is_number() ? value.get<double>() : 0.0;
    if (!(time > 0.0) || !std::isfinite(time))
      return problem(fmt::format("its \"seconds\" holds {}, no time above 0", quote(value.dump())));
    answer.seconds.push_back(time);
  }
  return answer;
}

Peer::Peer(std::string command, double timeout_seconds)
    : command_(std::move(command)), timeout_(timeout_seconds) {
  start();
}

Peer::~Peer() { stop(); }

void Peer::start() {
  ++starts_;
  received_.clear();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Error(fmt::format("--peer: no socket ({}); close files", std::strerror(errno)));
  socket_ = ends[0];
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // so that what it starts ends with it
  std::string shell = "sh";
  std::string option = "-c";
  const std::array<char*, 4> argv = {shell.data(), option.data(), command_.data(), nullptr};
  const int failed = ::posix_spawn(&child_, "/bin/sh", &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (failed != 0) {
    child_ = -1;
    stop();
    throw Error(fmt::format("--peer: no process ({}); free memory", std::strerror(failed)));
  }
}

void Peer::stop() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (child_ <= 0) return;
  // An orderly peer ends at the end of its input.
  for (int i = 0; i < 100; ++i) {
    if (::waitpid(child_, nullptr, WNOHANG) != 0) {
      ::kill(-child_, SIGKILL);  // what it left behind
      child_ = -1;
      return;
    }
    ::poll(nullptr, 0, 5);
  }
  ::kill(-child_, SIGKILL);
  (void)::waitpid(child_, nullptr, 0);
  child_ = -1;
}

std::string Peer::send(const std::string& line) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  std::size_t sent = 0;
  while (sent < line.size()) {
    pollfd entry{socket_, POLLOUT, 0};
    if (::poll(&entry, 1, left(end)) == 0) return fmt::format("it read nothing for {:g} s", timeout_);
    const ssize_t count =
        ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return kEnded;
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
  return {};
}

std::string Peer::receive(std::string& line) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  while (true) {
    const std::size_t newline = received_.find('\n');
    if (newline != std::string::npos) {
      line = received_.substr(0, newline);
      received_.erase(0, newline + 1);
      return {};
    }
    if (received_.size() > kLongestLine)
      return fmt::format("its line is longer than {} characters", kLongestLine);
    pollfd entry{socket_, POLLIN, 0};
    const int ready = ::poll(&entry, 1, left(end));
    if (ready == 0) return fmt::format("no answer after {:g} s (--peer-timeout)", timeout_);
    std::array<char, 65536> part;
    const ssize_t count = ::recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return kEnded;
    if (count > 0) received_.append(part.data(), static_cast<std::size_t>(count));
  }
}

PeerAnswer Peer::ask(const Case& c, double seconds) {
  if (socket_ < 0 && starts_ == kMostStarts)
    return problem(fmt::format("not asked: it failed {} times", kMostStarts));
  if (socket_ < 0) start();
  const std::int64_t id = ++id_;
  std::string line;
  std::string wrong = send(peer_request(id, c, seconds) + "\n");
  if (wrong.empty()) wrong = receive(line);
  PeerAnswer answer = wrong.empty() ? parse_peer_answer(id, line) : problem(wrong);
  // Nobody knows what it would say next.
  if (!answer.problem.empty()) {
    if (child_ > 0) ::kill(-child_, SIGKILL);
    stop();
  }
  return answer;
}

}  // namespace samestate
