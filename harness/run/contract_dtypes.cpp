#include "harness/run/contract_dtypes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/cases/case_line.h"
#include "harness/run/call_loop.h"
#include "harness/run/sixteen_bit.h"
#include "oracles/systems/input_format.h"

namespace samestate {
namespace {

/// NaN in every format.
constexpr int kAround = 0xff;

/// Calls f(judge's element, address of its 16 bits) for each element.
template <class F>
void each(const CallTensor& of, const GuardedMemory& memory, F&& f) {
  const StridedTensor elements = elements_of(of);
  visit(elements, [&](float& x) { f(x, memory.data() + (&x - elements.data) * 2); });
}

std::uint16_t bits_at(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}

void put(std::byte* at, std::uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }

}  // namespace

ContractDtypes::ContractDtypes(const System& system) {
  Case c = system.standard();
  if (system.has_key("state")) c.state = "random";
  const Signature signature = system.signature(c);
  for (const TensorSpec& spec : signature.inputs) inputs_.emplace(spec.name, spec);
  for (const TensorSpec& spec : signature.outputs) outputs_.emplace(spec.name, spec);
}

Dtype ContractDtypes::of(const CallTensor& tensor, bool output, const Contract& contract) const {
  const auto& specs = output ? outputs_ : inputs_;
  const auto spec = specs.find(tensor.name);
  if (spec == specs.end()) return Dtype::fp32;
  if (output) return dtype_of(device_format(spec->second, contract));
  if (spec->second.axis == Axis::state) return dtype_of(contract.state);
  return dtype_of(input_format(spec->second, contract));
}

ContractCall::ContractCall(const KernelCall& call, const Contract& contract, const ContractDtypes& dtypes)
    : call_(call) {
  for (CallTensor& x : call_.outputs) x = narrowed(x, dtypes.of(x, true, contract), true);
  for (CallTensor& x : call_.inputs) x = narrowed(x, dtypes.of(x, false, contract), false);
  for (Narrow& x : tensors_) {
    x.memory.named(x.of.name, !x.output);
    if (!x.output) x.memory.close();
  }
  spoil();
}

CallTensor ContractCall::narrowed(const CallTensor& x, Dtype dtype, bool output) {
  if (dtype == Dtype::fp32 || x.data == nullptr) return x;
  const auto shared =
      std::ranges::find_if(tensors_, [&](const Narrow& other) { return other.of.data == x.data; });
  const bool fresh = shared == tensors_.end();
  if (fresh) {
    // As the judge's tensor lies in its pages, so does this one in its own.
    const auto at = reinterpret_cast<std::uintptr_t>(x.data);
    MemoryPlace place{.ends_page = at % kPageBytes != 0, .element = sizeof(std::uint16_t)};
    if (at % place.alignment != 0) place.alignment = place.element;
    std::vector<MemoryBlock> blocks = blocks_of(x.shape, x.stride, place.element);
    if (blocks.size() > 1) place.unused_before = std::size_t{1} << 33;
    tensors_.push_back({x, dtype, GuardedMemory(std::move(blocks), place), !output, output});
    for (std::size_t b = 0; b < tensors_.back().memory.blocks().size(); ++b) {
      const std::span<std::byte> pages = tensors_.back().memory.pages(b);
      std::memset(pages.data(), kAround, pages.size());
    }
  }
  Narrow& own = fresh ? tensors_.back() : *shared;
  own.input = own.input || !output;
  if (!output) {
    each(x, own.memory, [&](float value, std::byte* to) {
      const std::uint16_t bits = bits_of(value, dtype);
      if (!std::isnan(value) && value_of(bits, dtype) != value)
        throw Unavailable(
            {Outcome::Kind::unsupported,
             fmt::format("{} contains {}, which is not a number of the format that the row asks for: "
                         "a row without contract_dtypes gets it in fp32",
                         x.name, value)});
      put(to, bits);
    });
  }
  CallTensor out = x;
  out.dtype = dtype;
  out.data = own.memory.data();
  return out;
}

void ContractCall::spoil() {
  for (Narrow& x : tensors_) {
    if (!x.output) continue;
    if (!x.input) each(x.of, x.memory, [&](float, std::byte* to) { put(to, stale_bits(x.dtype)); });
    x.before.clear();
    for (std::size_t b = 0; b < x.memory.blocks().size(); ++b) {
      const std::span<std::byte> pages = x.memory.pages(b);
      x.before.insert(x.before.end(), pages.begin(), pages.end());
    }
  }
}

void ContractCall::give_back() {
  for (Narrow& x : tensors_) {
    if (const std::string what = x.memory.trespass(); !what.empty()) throw Trespass("the kernel " + what);
    if (!x.output) continue;
    check_around(x);
    // Elements that were not written keep the values that the judge put there.
    each(x.of, x.memory, [&](float& value, const std::byte* from) {
      const std::uint16_t bits = bits_at(from);
      if (x.input || bits != stale_bits(x.dtype)) value = value_of(bits, x.dtype);
    });
  }
}

void ContractCall::check_around(Narrow& x) const {
  const std::vector<MemoryBlock>& blocks = x.memory.blocks();
  std::vector<std::ptrdiff_t> starts;  // of the pages of each block, from the first element on
  for (std::size_t b = 0; b < blocks.size(); ++b)
    starts.push_back(x.memory.pages(b).data() - x.memory.data());
  const auto copy_of = [&](const std::byte* at) {
    const std::ptrdiff_t byte = at - x.memory.data();
    std::size_t before = 0, b = 0;
    for (; b + 1 < blocks.size() && starts[b + 1] <= byte; ++b) before += x.memory.pages(b).size();
    return x.before.data() + before + (byte - starts[b]);
  };
  each(x.of, x.memory, [&](float, const std::byte* from) { std::memcpy(copy_of(from), from, 2); });
  std::size_t before = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const std::span<std::byte> now = x.memory.pages(b);
    const auto at =
        std::mismatch(now.begin(), now.end(), x.before.begin() + static_cast<std::ptrdiff_t>(before)).first;
    before += now.size();
    if (at == now.end()) continue;
    const std::ptrdiff_t byte = &*at - x.memory.data();
    const std::ptrdiff_t element = byte >= 0 ? byte / 2 : -((1 - byte) / 2);
    throw Trespass("the kernel wrote " +
                   outside(x.of.name, element,
                           static_cast<std::ptrdiff_t>((blocks.back().begin + blocks.back().bytes) / 2)));
  }
}

}  // namespace samestate
