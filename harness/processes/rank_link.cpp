#include "harness/processes/rank_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace samestate {
namespace {

struct FrameHeader {
  std::int32_t rank = 0;
  RankFrame::Kind kind = RankFrame::Kind::text;
  std::uint64_t bytes = 0;  ///< bytes that follow
};

std::string bytes_of(const RankFrame& frame) {
  const FrameHeader header{frame.rank, frame.kind, frame.text.size()};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + frame.text;
}

}  // namespace

RankLink::RankLink(int socket, int rank, int ranks) : socket_(socket), rank_(rank), ranks_(ranks) {}

RankLink::~RankLink() { ::close(socket_); }

bool RankLink::flush() {
  while (!unsent_.empty()) {
    const std::string& first = unsent_.front();
    const ssize_t n = ::send(socket_, first.data() + sent_of_first_, first.size() - sent_of_first_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    sent_bytes += n;
    sent_of_first_ += static_cast<std::size_t>(n);
    if (sent_of_first_ < first.size()) continue;
    unsent_.pop_front();
    sent_of_first_ = 0;
  }
  return true;
}

bool RankLink::post(const RankFrame& frame) {
  unsent_.push_back(bytes_of(frame));
  return flush();
}

bool RankLink::send(const RankFrame& frame) {
  bool open = post(frame);
  while (open && has_unsent()) {
    pollfd entry{socket_, POLLOUT, 0};
    (void)::poll(&entry, 1, -1);
    open = flush();
  }
  return open;
}

bool RankLink::receive(std::vector<RankFrame>& frames) {
  bool open = true;
  while (true) {
    std::array<char, 1 << 16> part;
    const ssize_t n = ::recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) {
      received_bytes += n;
      received_.append(part.data(), static_cast<std::size_t>(n));
      continue;
    }
    open = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    break;
  }
  std::size_t at = 0;
  FrameHeader header;
  while (received_.size() - at >= sizeof header) {
    std::memcpy(&header, received_.data() + at, sizeof header);
    if (received_.size() - at - sizeof header < header.bytes) break;
    frames.push_back({header.rank, header.kind, received_.substr(at + sizeof header, header.bytes)});
    at += sizeof header + header.bytes;
  }
  received_.erase(0, at);
  return open;
}

void RankLink::wait(int milliseconds) const {
  pollfd entry{socket_, static_cast<short>(POLLIN | (has_unsent() ? POLLOUT : 0)), 0};
  (void)::poll(&entry, 1, milliseconds);
}

}  // namespace samestate
