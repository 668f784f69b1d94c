#include "harness/run/call_variant.h"

#include <array>
#include <utility>

#include "harness/cases/resolved.h"

namespace samestate {
namespace {

thread_local std::string variant;                        // NOLINT
thread_local std::function<void(bool, double)> excuser;  // NOLINT

}  // namespace

std::vector<std::string> variant_of(const KernelRow& kernel, Case c) {
  const Resolved r(c);
  if (!r.form->packed) c.form = kernel.form;
  std::vector<std::string> values;
  for (const std::string_view key : kernel.compiled_for) {
    if (!key.ends_with(kBySixteen)) {
      values.push_back(call_value(c, key));
      continue;
    }
    const std::string value = call_value(c, key.substr(0, key.size() - kBySixteen.size()));
    values.emplace_back(value == "1" ? "1" : std::stoll(value) % 16 == 0 ? "16" : "other");
  }
  return values;
}

CallVariant::CallVariant(const KernelChoice& kernels, const Case& c) {
  variant.clear();
  for (const KernelRow* kernel : std::array{kernels.named, kernels.chunked, kernels.unchunked}) {
    if (kernel == nullptr || kernel->compiled_for.empty()) continue;
    for (const std::string& value : variant_of(*kernel, c)) variant += value + '\n';
  }
}

CallVariant::~CallVariant() { variant.clear(); }

const std::string& CallVariant::of_this_thread() { return variant; }

ExcusedTime::ExcusedTime(double most) {
  if (excuser) excuser(true, most);
}

ExcusedTime::~ExcusedTime() {
  if (excuser) excuser(false, 0.0);
}

void ExcusedTime::tell(std::function<void(bool, double)> listener) { excuser = std::move(listener); }

}  // namespace samestate
