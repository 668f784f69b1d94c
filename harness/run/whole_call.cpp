#include "harness/run/whole_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/run/guard.h"
#include "reference/error.h"

namespace samestate {
StridedTensor row_major_tensor(float* data, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> stride(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) stride[d - 1] = stride[d] * shape[d];
  return {data, std::move(shape), std::move(stride)};
}

void WholeCall::lay_out(const CallLoop& loop, const std::vector<std::vector<float>*>& outputs) {
  const int threads = call_.threads;
  const Segment& all = loop.path.front();
  call_ = loop.settings;
  call_.threads = threads;
  call_.tokens = all.tokens;
  call_.set("chunk", static_cast<double>(all.chunk));
  call_.divides_heads = !all.head_cuts.empty();
  const std::vector<Index>& cuts = call_.divides_heads ? all.head_cuts : all.cuts;
  call_.cuts.assign(cuts.begin(), cuts.end());
  if (!loop.offsets.empty())
    call_.cu_seqlens = row_major<const std::int64_t, 1>(loop.offsets.data(), {std::ssize(loop.offsets)});
  no_tensors();
  for (const RunTensor& x : loop.inputs) input(x, {x.shape, x.axis, x.batched}, *x.data);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    output(loop.outputs[i].name, {loop.outputs[i].shape, loop.outputs[i].axis}, *outputs[i]);
}

void WholeCall::input(const RunTensor& of, TensorPlace place, const std::vector<float>& data) {
  // A KernelCall has only one kind of tensor; run_calls checks that inputs stay unchanged, and bench only
  // times calls.
  const TensorRole role = place.axis == Axis::whole ? TensorRole::weight : TensorRole::input;
  call_.inputs.push_back(
      with_elements({.name = of.name, .role = role, .axis = place.axis, .indices = of.indices},
                    row_major_tensor(const_cast<float*>(data.data()), place.shape)));
  input_places_.push_back(std::move(place));
}

void WholeCall::output(std::string_view name, TensorPlace place, std::vector<float>& data) {
  std::size_t size = 1;
  for (const std::int64_t extent : place.shape) size *= static_cast<std::size_t>(extent);
  data.resize(size);
  call_.outputs.push_back(with_elements({.name = name, .role = TensorRole::output, .axis = place.axis},
                                        row_major_tensor(data.data(), place.shape)));
  output_places_.push_back(std::move(place));
}

void WholeCall::no_tensors() {
  call_.inputs.clear(), call_.outputs.clear();
  input_places_.clear(), output_places_.clear();
}

void require_one_call(const Resolved& r) {
  const Case& c = r.c;
  if (r.law != nullptr) throw Error("law=" + c.law + " is a relation between runs; leave it out");
  // For named tensors the last call is timed, since the calls before it fill the caches. The family's call is
  // one of form=recurrent.
  const bool last_of_several = r.form->decodes && r.form->of_any_form();
  if ((r.form->decodes && !last_of_several) || r.form->whole) {
    std::vector<std::string_view> forms;
    for (const CaseForm& form : r.system->forms) {
      if (!form.decodes && !form.whole) forms.push_back(form.name);
    }
    throw Error(fmt::format("form={} is several calls; time form={}", c.form, fmt::join(forms, ", ")));
  }
  if (r.form->packed && c.ranks > 1)
    throw Error(fmt::format(
        "ranks={}: packed sequences are judged one by one here, but a cut is that of all; time form={}",
        c.ranks, r.system->ranked(r.divides_heads())->name));
  if (r.layout == Layout::far || r.layout == Layout::page_end)
    throw Error("layout=" + c.layout +
                ": it exists to find faults, and calls are not timed with it; leave it out, or time " +
                "padded, mixed, fused, permuted or sliced");
  if (r.final_state != FinalState::apart || c.lead + c.slack > 0 || c.repeat)
    throw Error("final, unowned and repeat: bench times one plain call; leave them out");
  if (c.T < 1) throw Error("T=0: nothing to time");
}

void poison(const KernelCall& call) {
  for (const CallTensor& x : call.outputs) visit(elements_of(x), [](float& element) { element = kPoison; });
}

std::string not_a_number(const KernelCall& call) {
  for (const CallTensor& x : call.outputs) {
    const StridedTensor elements = elements_of(x);
    const float* begin = elements.data;
    const float* end = begin + elements.size();
    const float* found = std::find_if(begin, end, [](float value) { return std::isnan(value); });
    if (found != end)
      return fmt::format("{} element {}: NaN, or not written by the timed call", x.name, found - begin);
  }
  return {};
}

}  // namespace samestate
