#include "harness/subjects/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/run/call_loop.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// The least distance between two tensors, and the multiple at which each begins: small tensors then lie at
/// the same places in every call, and their pages need not be given back.
constexpr std::size_t kHole = std::size_t{4} << 20, kStep = std::size_t{8} << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t span_of(const EdgeRegion& region) {
  return region.blocks.back().begin + region.blocks.back().bytes;
}

[[noreturn]] void refuse(std::size_t bytes, const char* what) {
  throw Unavailable(
      {Outcome::Kind::no_device,
       fmt::format("a memory object of {} MiB, nearly all of it holes, cannot be {} ({}): raise ulimit -v "
                   "and ulimit -f, or leave out layout=far",
                   bytes >> 20, what, std::strerror(errno))});
}

}  // namespace

SharedMemory::SharedMemory(int lanes)
    : file_(::memfd_create("samestate", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      lanes_(static_cast<std::size_t>(lanes)) {
  if (file_ < 0) throw Error(fmt::format("no memory object ({})", std::strerror(errno)));
  // Otherwise a subject that truncates it would end the judge.
  ::fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK);
  seals_ = ::fcntl(file_, F_GET_SEALS);
}

SharedMemory::~SharedMemory() {
  unmap();
  ::close(file_);
}

std::string SharedMemory::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_); }

void SharedMemory::unmap() {
  if (begin_ != nullptr) ::munmap(begin_, size_);
  begin_ = nullptr;
  size_ = 0;
}

/// `bytes` is the size of a lane.
void SharedMemory::grow(std::size_t bytes) {
  const std::size_t wanted = rounded_up(bytes + bytes / 4, std::size_t{64} << 20) * lanes_.size();
  // An object that cannot be mapped must not be created: it cannot shrink again, and any process that maps it
  // later maps all of it.
  void* room = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) refuse(wanted, "mapped");
  ::munmap(room, wanted);
  if (wanted > made_) {
    if (::ftruncate(file_, static_cast<off_t>(wanted)) != 0) refuse(wanted, "made");
    made_ = wanted;
  }
  unmap();
  void* begin = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (begin == MAP_FAILED) refuse(wanted, "mapped");
  // A huge page would be allocated in full, gap and tensor alike.
  (void)::madvise(begin, wanted, MADV_NOHUGEPAGE);
  begin_ = static_cast<std::byte*>(begin);
  size_ = wanted;
}

void SharedMemory::punch(std::size_t begin, std::size_t end) const {
  if (begin < end)
    (void)::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                      static_cast<off_t>(end - begin));
}

std::vector<SharedMemory::Pages> SharedMemory::held() const {
  std::vector<Pages> all;
  for (const Lane& lane : lanes_) all.insert(all.end(), lane.held.begin(), lane.held.end());
  return all;
}

void SharedMemory::leave(int lane) {
  {
    const std::scoped_lock lock(mutex_);
    lanes_[static_cast<std::size_t>(lane)].placed = false;
  }
  left_.notify_all();
}

std::vector<EdgePlace> SharedMemory::place(std::span<const EdgeRegion> regions, int lane) {
  std::unique_lock lock(mutex_);
  Lane& own = lanes_[static_cast<std::size_t>(lane)];
  own.placed = false;
  std::vector<Pages> pages;
  std::vector<std::size_t> offsets;
  std::size_t at = kStep;
  for (const EdgeRegion& region : regions) {
    at += rounded_up(region.place.unused_before, kStep);
    const std::size_t span = span_of(region), whole = rounded_up(span, kPageBytes);
    const std::size_t lead =
        region.place.ends_page ? (whole - span) / region.place.alignment * region.place.alignment : 0;
    offsets.push_back(at + lead);
    for (const MemoryBlock& block : region.blocks) {
      const std::size_t first = at + lead + block.begin;
      if (block.bytes > 0)
        pages.push_back({first / kPageBytes * kPageBytes, rounded_up(first + block.bytes, kPageBytes)});
    }
    at = rounded_up(at + whole + kHole, kStep);
  }
  if (at > size_ / lanes_.size()) {
    left_.wait(lock, [&] { return std::ranges::none_of(lanes_, &Lane::placed); });
    if (at > size_ / lanes_.size()) {
      punch(0, size_);
      for (Lane& each : lanes_) each.held.clear();
      grow(at);
    }
  }
  const std::size_t begin_of_lane = static_cast<std::size_t>(lane) * (size_ / lanes_.size());
  for (std::size_t& offset : offsets) offset += begin_of_lane;
  for (Pages& each : pages) each.begin += begin_of_lane, each.end += begin_of_lane;
  // Pages that an earlier call used elsewhere are given back.
  auto now = pages.begin();
  for (const Pages& old : own.held) {
    std::size_t begin = old.begin;
    while (now != pages.end() && now->end <= begin) ++now;
    for (auto next = now; next != pages.end() && next->begin < old.end; ++next) {
      punch(begin, std::min(next->begin, old.end));
      begin = std::max(begin, next->end);
    }
    punch(begin, old.end);
  }
  own = {std::move(pages), std::move(offsets), true};
  std::vector<EdgePlace> places;
  for (std::size_t r = 0; r < regions.size(); ++r) {
    EdgePlace place{begin_ + own.offsets[r], own.offsets[r]};
    for (const MemoryBlock& block : regions[r].blocks) {
      const std::size_t first = own.offsets[r] + block.begin, from = first / kPageBytes * kPageBytes;
      place.around.emplace_back(begin_ + from,
                                block.bytes > 0 ? rounded_up(first + block.bytes, kPageBytes) - from : 0);
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::string SharedMemory::touched(std::span<const EdgeRegion> regions, int lane) {
  const std::scoped_lock lock(mutex_);
  Lane& own = lanes_[static_cast<std::size_t>(lane)];
  const std::vector<Pages> held = this->held();
  std::size_t from = 0;
  const auto data_behind = [&]() -> std::size_t {
    const off_t found = ::lseek(file_, static_cast<off_t>(from), SEEK_DATA);
    return found < 0 ? size_ : static_cast<std::size_t>(found);
  };
  std::size_t stray = size_;
  for (const Pages& pages : held) {
    stray = data_behind();
    if (stray < pages.begin) break;
    stray = size_;
    from = pages.end;
  }
  if (stray == size_) stray = data_behind();
  if (stray >= size_) return "";
  const off_t hole = ::lseek(file_, static_cast<off_t>(stray), SEEK_HOLE);
  const std::size_t end = hole < 0 ? stray + kPageBytes : static_cast<std::size_t>(hole);
  const auto next = std::ranges::find_if(held, [&](const Pages& pages) { return pages.begin > stray; });
  const std::span<const std::byte> there(begin_ + stray,
                                         std::min(end, next == held.end() ? size_ : next->begin) - stray);
  const auto written = std::ranges::find_if(there, [](std::byte b) { return b != std::byte{0}; });
  const bool wrote = written != there.end();
  const auto place =
      static_cast<std::int64_t>(stray + (wrote ? static_cast<std::size_t>(written - there.begin()) : 0));
  // Names the nearest tensor and the least distance outside it.
  std::string words;
  std::int64_t nearest = INT64_MAX;
  for (std::size_t r = 0; r < regions.size(); ++r) {
    const auto first = static_cast<std::int64_t>(own.offsets[r]);
    const auto size = static_cast<std::int64_t>(regions[r].place.element);
    const auto span = static_cast<std::int64_t>(span_of(regions[r]));
    const std::int64_t last_of_page = wrote ? place : place + static_cast<std::int64_t>(kPageBytes) - 1;
    const std::int64_t byte = (last_of_page < first ? last_of_page : place) - first;
    const std::int64_t distance = byte < 0 ? -byte : std::max<std::int64_t>(byte - span + 1, 0);
    if (distance >= nearest) continue;
    nearest = distance;
    const std::int64_t element = byte >= 0 ? byte / size : -((size - 1 - byte) / size);
    const std::string where = outside(regions[r].name, element, (span + size - 1) / size);
    words = wrote ? "wrote " + where : "read, or wrote zeros to, the page " + where;
  }
  // This frees everything else, except what the other lanes hold.
  own.held.clear();
  std::size_t begin = 0;
  for (const Pages& pages : this->held()) {
    punch(begin, pages.begin);
    begin = pages.end;
  }
  punch(begin, size_);
  return words;
}

std::string SharedMemory::changed() const {
  if (::fcntl(file_, F_GET_SEALS) != seals_) return "sealed the memory object, which is the judge's";
  struct stat now {};
  if (::fstat(file_, &now) == 0 && static_cast<std::size_t>(now.st_size) != made_)
    return fmt::format("made {} bytes of a memory object of {}, which is the judge's", now.st_size, made_);
  return "";
}

}  // namespace samestate
