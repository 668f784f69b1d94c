#include "harness/run/output_hashes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "harness/records/hash.h"
#include "harness/run/kernel_table.h"

namespace samestate {
namespace {

thread_local OutputHashes* counting = nullptr;

constexpr std::uint64_t kPrime = 0x100000001b3U;  // the prime of FNV-1a

}  // namespace

OutputHashes::OutputHashes() : outer_(counting) { counting = this; }

OutputHashes::~OutputHashes() { counting = outer_; }

void OutputHashes::count(const KernelRow& kernel, const KernelCall& call) {
  if (counting == nullptr || kernel.device == "cpu") return;
  auto& hashes = counting->hashes_;
  for (const CallTensor& output : call.outputs) {
    if (output.data == nullptr) continue;
    auto found =
        std::find_if(hashes.begin(), hashes.end(), [&](const auto& h) { return h.first == output.name; });
    if (found == hashes.end()) found = hashes.insert(hashes.end(), {std::string(output.name), hash_of("")});
    std::uint64_t hash = found->second;
    // It hashes words, since bytes would take four times as long; a cache of a model's shape already takes a
    // second.
    visit(elements_of(output),
          [&](const float& x) { hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * kPrime; });
    found->second = hash;
  }
}

std::string OutputHashes::text() const {
  std::string out;
  for (const auto& [name, hash] : hashes_)
    out += fmt::format("{}{}:{:016x}", out.empty() ? "" : " ", name, hash);
  return out;
}

}  // namespace samestate
