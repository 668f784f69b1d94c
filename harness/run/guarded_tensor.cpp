#include "harness/run/guarded_tensor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/run/guard.h"
#include "harness/run/runner.h"

namespace samestate {
namespace {

constexpr std::int64_t kOverflow = std::int64_t{1} << 31;  // the first offset that an int cannot hold
constexpr std::int64_t kPage = 4096 / sizeof(float);

std::int64_t whole_pages(std::int64_t elements) { return (elements + kPage - 1) / kPage * kPage; }

template <class Visitor>
void visit(const View<float, 4>& view, Visitor&& visitor) {
  for (std::int64_t a = 0; a < view.shape[0]; ++a) {
    for (std::int64_t b = 0; b < view.shape[1]; ++b) {
      for (std::int64_t c = 0; c < view.shape[2]; ++c) {
        for (std::int64_t d = 0; d < view.shape[3]; ++d) visitor(view(a, b, c, d));
      }
    }
  }
}

}  // namespace

Layout layout_named(std::string_view name) {
  if (name == "dense") return Layout::dense;
  if (name == "padded") return Layout::padded;
  if (name == "far") return Layout::far;
  throw Error(fmt::format("layout={}: must be one of dense, padded, far", name));
}

struct GuardedTensor::Range {
  void* begin;
  std::size_t bytes;
};

void GuardedTensor::Unmap::operator()(Range* range) const {
  ::munmap(range->begin, range->bytes);
  delete range;
}

GuardedTensor::GuardedTensor(std::array<std::int64_t, 4> shape, Layout layout) {
  const std::int64_t gap = layout == Layout::padded ? 3 : 0;
  view_.shape = shape;
  view_.stride[3] = 1;
  // An empty dimension counts as one in the strides, as in PyTorch: else that of the batch would be 0
  // without tokens.
  const auto extent = [&](std::size_t d) { return std::max<std::int64_t>(shape[d], 1); };
  view_.stride[2] = extent(3) + gap;
  view_.stride[1] = extent(2) * view_.stride[2] + gap;
  view_.stride[0] = extent(1) * view_.stride[1] + gap;
  if (layout == Layout::far && view_.size() > 0 && (shape[0] > 1 || shape[1] > 1)) {
    reserve(shape[0] > 1 ? 0 : 1);
    return;
  }
  block_size_ = shape[0] * view_.stride[0];
  storage_.assign(static_cast<std::size_t>(block_size_ + 2 * kGuard), kPoison);
  view_.data = storage_.data() + kGuard;
}

void GuardedTensor::reserve(std::size_t far) {
  blocks_ = view_.shape[far];
  block_size_ = view_.stride[far];
  // The last row begins after 2^31; of the batch every row after the first does.
  const std::int64_t slot = whole_pages(block_size_ + 2 * kGuard);
  block_stride_ = slot + whole_pages(far == 0 ? kOverflow : kOverflow / (blocks_ - 1));
  view_.stride[far] = block_stride_;
  if (far == 1) view_.stride[0] = blocks_ * block_stride_;
  const std::int64_t before = kOverflow + slot;
  const auto bytes =
      static_cast<std::size_t>(before + (blocks_ - 1) * block_stride_ + 2 * slot) * sizeof(float);
  // Shared, as private memory would count as data in full where a process's data are limited.
  void* begin =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw Unavailable({Outcome::Kind::no_device,
                       fmt::format("layout=far needs {} GiB of address space ({}): raise ulimit -v, or set "
                                   "vm.overcommit_memory to 0 or 1",
                                   bytes >> 30, std::strerror(errno))});
  }
  range_.reset(new Range{begin, bytes});
  view_.data = static_cast<float*>(begin) + before;
  for (std::int64_t i = 0; i < blocks_; ++i) {
    std::fill_n(view_.data + i * block_stride_ - kGuard, block_size_ + 2 * kGuard, kPoison);
  }
}

void GuardedTensor::set(const std::vector<float>& dense) {
  std::size_t from = 0;
  visit(view_, [&](float& x) { x = dense[from++]; });
}

std::vector<float> GuardedTensor::get() const {
  std::vector<float> dense;
  dense.reserve(static_cast<std::size_t>(view_.size()));
  visit(view_, [&](float& x) { dense.push_back(x); });
  return dense;
}

bool GuardedTensor::same_as(const std::vector<float>& dense) const {
  const std::vector<float> now = get();
  return now.size() == dense.size() &&
         (now.empty() || std::memcmp(now.data(), dense.data(), now.size() * sizeof(float)) == 0);
}

void GuardedTensor::spoil() {
  std::int64_t i = 0;
  visit(view_, [&](float& x) { x = stale(i++); });
}

std::vector<float> GuardedTensor::written() const {
  std::vector<float> dense = get();
  mark_unwritten(dense);
  return dense;
}

void GuardedTensor::check_surroundings(const char* name) const {
  View<float, 4> inside = view_;
  if (blocks_ > 1) inside.shape[view_.shape[0] > 1 ? 0 : 1] = 1;
  std::vector<float> block(static_cast<std::size_t>(block_size_ + 2 * kGuard));
  inside.data = block.data() + kGuard;
  for (std::int64_t b = 0; b < blocks_; ++b) {
    std::copy_n(view_.data + b * block_stride_ - kGuard, std::ssize(block), block.data());
    visit(inside, [](float& x) { x = kPoison; });
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (poisoned(block[i])) continue;
      throw Trespass(fmt::format("the kernel wrote outside {}: element {} of its buffer", name,
                                 b * block_stride_ + static_cast<std::int64_t>(i) - kGuard));
    }
  }
}

}  // namespace samestate
