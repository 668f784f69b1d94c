#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// What one rank sends another, or what its wire says of one.
struct RankFrame {
  enum class Kind : std::uint32_t {
    text,  ///< of the rank
    lost   ///< the rank is gone, and nothing more comes of it
  };
  int rank = 0;  ///< that it is from; of one that is sent, to
  Kind kind = Kind::text;
  std::string text = {};
};

/// One end of the socket between a rank and its wire, the process that carries its frames to the other ranks (cli/mpi: by
/// MPI; a test: by a process of its own). Knows nothing of what carries them.
class RankLink {
 public:
  /// Takes over `socket`, a stream. No worker that this process starts holds it open.
  RankLink(int socket, int rank, int ranks);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  /// Readable when something came, or when the other end is gone.
  [[nodiscard]] int descriptor() const { return socket_; }

  /// Waits until the other end took it. False where that is gone.
  [[nodiscard]] bool send(const RankFrame& frame);
  /// Keeps it until `flush` finds room: for an end that may not wait. False where the other end is gone.
  [[nodiscard]] bool post(const RankFrame& frame);
  [[nodiscard]] bool flush();
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }

  /// Appends the frames that are there, without waiting; false where nothing more will come.
  [[nodiscard]] bool receive(std::vector<RankFrame>& frames);
  /// Until something is there, at most so long; below 0: as long as it takes.
  void wait(int milliseconds) const;

  std::int64_t sent_bytes = 0, received_bytes = 0;  ///< that went through here, headers included

 private:
  int socket_, rank_, ranks_;
  std::string received_;
  std::deque<std::string> unsent_;
  std::size_t sent_of_first_ = 0;
};

}  // namespace samestate
