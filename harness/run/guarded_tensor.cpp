#include "harness/run/guarded_tensor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "harness/run/call_loop.h"
#include "harness/run/guard.h"

namespace samestate {
namespace {

constexpr std::int64_t kOverflow = std::int64_t{1} << 31;  // the first offset that an int cannot hold
constexpr std::int64_t kPage = 4096 / sizeof(float);

std::int64_t whole_pages(std::int64_t elements) { return (elements + kPage - 1) / kPage * kPage; }

/// Calls visitor(element) in row-major order.
template <class Visitor>
void visit(const StridedTensor& x, Visitor&& visitor, std::size_t d = 0, std::int64_t offset = 0) {
  if (d == 0 && x.dense()) {
    for (std::int64_t i = 0, size = x.size(); i < size; ++i) visitor(x.data[i]);
    return;
  }
  if (d == x.shape.size()) {
    visitor(x.data[offset]);
    return;
  }
  if (d + 1 == x.shape.size()) {
    for (std::int64_t i = 0; i < x.shape[d]; ++i) visitor(x.data[offset + i * x.stride[d]]);
    return;
  }
  for (std::int64_t i = 0; i < x.shape[d]; ++i) visit(x, visitor, d + 1, offset + i * x.stride[d]);
}

}  // namespace

std::int64_t StridedTensor::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

bool StridedTensor::dense() const {
  if (size() == 0) return true;
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) {
    if (shape[d] > 1 && stride[d] != step) return false;
  }
  return true;
}

StridedTensor StridedTensor::slice(std::size_t d, std::int64_t begin, std::int64_t end) const {
  StridedTensor part = *this;
  if (part.data) part.data += begin * stride.at(d);
  part.shape.at(d) = end - begin;
  return part;
}

struct GuardedTensor::Range {
  void* begin;
  std::size_t bytes;
};

void GuardedTensor::Unmap::operator()(Range* range) const {
  ::munmap(range->begin, range->bytes);
  delete range;
}

GuardedTensor::GuardedTensor(std::vector<std::int64_t> shape, Layout layout) {
  const std::int64_t gap = layout == Layout::padded ? 3 : 0;
  tensor_.shape = std::move(shape);
  const std::size_t rank = tensor_.shape.size();
  tensor_.stride.assign(rank, 1);
  // An empty dimension counts as one in the strides, as in PyTorch: else that of the batch would be 0
  // without tokens.
  const auto extent = [&](std::size_t d) { return std::max<std::int64_t>(tensor_.shape[d], 1); };
  for (std::size_t d = rank; d-- > 1;) tensor_.stride[d - 1] = extent(d) * tensor_.stride[d] + gap;
  if (layout == Layout::far && tensor_.size() > 0) {
    // Never the innermost: what a kernel reads at once lies together.
    for (std::size_t d = 0; d < 2 && d + 1 < rank; ++d) {
      if (tensor_.shape[d] < 2) continue;
      reserve(d);
      return;
    }
  }
  block_size_ = rank > 0 ? tensor_.shape[0] * tensor_.stride[0] : 1;
  storage_.assign(static_cast<std::size_t>(block_size_ + 2 * kGuard), kOutside);
  tensor_.data = storage_.data() + kGuard;
}

void GuardedTensor::reserve(std::size_t far) {
  far_ = far;
  blocks_ = tensor_.shape[far];
  block_size_ = tensor_.stride[far];
  // The last row begins after 2^31; of the batch every row after the first does.
  const std::int64_t slot = whole_pages(block_size_ + 2 * kGuard);
  block_stride_ = slot + whole_pages(far == 0 ? kOverflow : kOverflow / (blocks_ - 1));
  tensor_.stride[far] = block_stride_;
  if (far == 1) tensor_.stride[0] = blocks_ * block_stride_;
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
  tensor_.data = static_cast<float*>(begin) + before;
  for (std::int64_t i = 0; i < blocks_; ++i) {
    std::fill_n(tensor_.data + i * block_stride_ - kGuard, block_size_ + 2 * kGuard, kOutside);
  }
}

void GuardedTensor::set(const std::vector<float>& dense) {
  std::size_t from = 0;
  visit(tensor_, [&](float& x) { x = dense[from++]; });
}

std::vector<float> GuardedTensor::get() const {
  std::vector<float> dense;
  dense.reserve(static_cast<std::size_t>(tensor_.size()));
  visit(tensor_, [&](float& x) { dense.push_back(x); });
  return dense;
}

bool GuardedTensor::same_as(const std::vector<float>& dense) const {
  const std::vector<float> now = get();
  return now.size() == dense.size() &&
         (now.empty() || std::memcmp(now.data(), dense.data(), now.size() * sizeof(float)) == 0);
}

void GuardedTensor::spoil() {
  std::int64_t i = 0;
  visit(tensor_, [&](float& x) { x = stale(i++); });
}

std::vector<float> GuardedTensor::written() const {
  std::vector<float> dense = get();
  mark_unwritten(dense);
  return dense;
}

void GuardedTensor::check_surroundings(std::string_view name) const {
  const auto kept = [](float x) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(kOutside);
  };
  const auto check = [&](const float* guard) {
    for (std::int64_t i = 0; i < kGuard; ++i) {
      if (!kept(guard[i])) {
        throw Trespass(fmt::format("the kernel wrote outside {}: element {} of its buffer", name,
                                   guard + i - tensor_.data));
      }
    }
  };
  if (blocks_ == 1 && block_size_ == tensor_.size()) {
    check(tensor_.data - kGuard);
    check(tensor_.data + block_size_);
    return;
  }
  StridedTensor inside = tensor_;
  if (blocks_ > 1) inside.shape[far_] = 1;
  std::vector<float> block(static_cast<std::size_t>(block_size_ + 2 * kGuard));
  inside.data = block.data() + kGuard;
  for (std::int64_t b = 0; b < blocks_; ++b) {
    std::copy_n(tensor_.data + b * block_stride_ - kGuard, std::ssize(block), block.data());
    visit(inside, [](float& x) { x = kOutside; });
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (kept(block[i])) continue;
      throw Trespass(fmt::format("the kernel wrote outside {}: element {} of its buffer", name,
                                 b * block_stride_ + static_cast<std::int64_t>(i) - kGuard));
    }
  }
}

}  // namespace samestate
