#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A message from one rank to another, or the report of its wire about a rank.
struct RankFrame {
  enum class Kind : std::uint32_t {
    text,  ///< a message of the rank
    lost   ///< the rank is gone, and nothing more will arrive from it
  };
  int rank = 0;  ///< the sender; for a frame that is sent, the receiver
  Kind kind = Kind::text;
  std::string text = {};
};

/// One end of the socket between a rank and its wire, the process that carries its frames to the other ranks
/// (in cli/mpi by MPI, in tests by a process of their own). It does not depend on what carries the frames.
class RankLink {
 public:
  /// Takes over `socket`, a stream socket. Workers that this process starts do not inherit it.
  RankLink(int socket, int rank, int ranks);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  /// Readable when something has arrived, or when the other end is gone.
  [[nodiscard]] int descriptor() const { return socket_; }

  /// Waits until the other end has taken the frame. Returns false if the other end is gone.
  [[nodiscard]] bool send(const RankFrame& frame);
  /// Queues the frame until `flush` can send it, for an end that must not wait. Returns false if the other
  /// end is gone.
  [[nodiscard]] bool post(const RankFrame& frame);
  [[nodiscard]] bool flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }

  /// Appends the frames that have arrived, without waiting; returns false if nothing more will arrive.
  [[nodiscard]] bool receive(std::vector<RankFrame>& frames);
  /// Waits until something is there, at most that long; below 0, without a limit.
  void wait(int milliseconds) const;

  std::int64_t sent_bytes = 0, received_bytes = 0;  ///< bytes that passed through here, including headers

 private:
  int socket_, rank_, ranks_;
  std::string received_;
  std::deque<std::string> unsent_;
  std::size_t sent_of_first_ = 0;
};

}  // namespace samestate
