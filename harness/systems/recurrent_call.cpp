#include <algorithm>

#include "harness/cases/case_cost.h"
#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
#include "harness/run/whole_call.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/contracts.h"
#include "reference/costs/call.h"

/// One call of a system of the recurrent family: what it costs, and its tensors for timing.
namespace samestate {
namespace {

costs::RecurrenceConfig head_of(const Case& c, const Family& family) {
  costs::RecurrenceConfig head;
  head.key_width = c.dk;
  head.value_width = c.dv;
  head.delta = family.delta;
  head.decay = family.gated;
  head.gates = (family.delta ? 1 : 0) + (family.gated ? 1 : 0);
  return head;
}

/// Returns the format of the operands that the case's calls multiply; none if no rate is measured for it.
Format operands_of(const Resolved& r) {
  if (r.unchunked()) return Format::fp32;
  const Format operand = r.promised.state_operand;
  if (operand == Format::bf16 || operand == Format::fp16) return Format::bf16;
  return operand == Format::fp32 ? operand : Format::none;
}

/// Value head h of sequence n with the key head that serves it, as a batch and a case with one head.
struct OneHead {
  Case c;
  Batch batch;
  Outputs outputs;
};

/// Returns elements [begin, end) of tokens, of head `h` out of `heads`, each `width` wide.
std::vector<float> head_rows(const std::vector<float>& from, std::int64_t begin, std::int64_t end,
                             std::int64_t h, std::int64_t heads, std::int64_t width) {
  std::vector<float> rows;
  if (from.empty()) return rows;
  rows.reserve(static_cast<std::size_t>((end - begin) * width));
  for (std::int64_t t = begin; t < end; ++t) {
    const auto first = from.begin() + (t * heads + h) * width;
    rows.insert(rows.end(), first, first + width);
  }
  return rows;
}

OneHead one_head(const Resolved& r, const Batch& batch, const Outputs& outputs, std::int64_t n,
                 std::int64_t h) {
  const BatchShape& s = batch.shape;
  const std::int64_t begin = s.offsets.empty() ? n * s.T : s.begin(n);
  const std::int64_t end = begin + s.end(n) - s.begin(n);
  const std::int64_t key = key_head(h, s.Hk, s.Hv, s.head_map);
  OneHead one{r.c, {}, {}};
  one.c.B = one.c.Hk = one.c.Hv = 1;
  one.c.T = end - begin;
  one.c.lengths.clear();
  if (r.form->packed) one.c.form = r.unchunked() ? "recurrent" : "chunked";
  one.batch.shape = s;
  one.batch.shape.B = one.batch.shape.Hk = one.batch.shape.Hv = 1;
  one.batch.shape.T = end - begin;
  one.batch.shape.offsets.clear();
  one.batch.q = head_rows(batch.q, begin, end, key, s.Hk, s.dk);
  one.batch.k = head_rows(batch.k, begin, end, key, s.Hk, s.dk);
  one.batch.v = head_rows(batch.v, begin, end, h, s.Hv, s.dv);
  one.batch.g = head_rows(batch.g, begin, end, h, s.Hv, 1);
  one.batch.beta = head_rows(batch.beta, begin, end, h, s.Hv, 1);
  one.batch.initial_state = head_rows(batch.initial_state, n, n + 1, h, s.Hv, s.dk * s.dv);
  one.outputs.o = head_rows(outputs.o, begin, end, h, s.Hv, s.dv);
  one.outputs.final_state = head_rows(outputs.final_state, n, n + 1, h, s.Hv, s.dk * s.dv);
  return one;
}

class RecurrentCall final : public WholeCall {
 public:
  RecurrentCall(const Resolved& r, const Family& family, int threads)
      : r_(r), family_(family), batch_(batch_of(r_, family, threads)) {
    call_.threads = threads;
    loop_ = family_loop(batch_, r_.path(batch_.shape.T));
    lay_out(loop_, {&outputs_.o, &outputs_.final_state});
    contract_ = r_.unchunked() ? recurrent_contract(r_.promised) : r_.promised;
  }

  void prepare(const KernelChoice& kernels) override {
    if (kernels.named->given) batch_.shape.given = kernels.named->given(r_.promised);
  }

  [[nodiscard]] std::int64_t parts() const override { return batch_.shape.sequences() * batch_.shape.Hv; }

  [[nodiscard]] Judgement judge(std::int64_t part, const KernelChoice& kernels,
                                const JudgePolicy& policy) const override {
    const std::int64_t Hv = batch_.shape.Hv;
    const OneHead one = one_head(r_, batch_, outputs_, part / Hv, part % Hv);
    const Runner again = [&](const Batch& batch, const Path& path) {
      return run_kernel(kernels, batch, path, r_.promised, {});
    };
    const Resolved r(one.c);
    Judgement j = judge_batch(r, family_, one.batch, one.outputs, policy, again, takes_pieces(kernels, r));
    j.worst.sequence = part / Hv;
    j.worst.head = part % Hv;
    return j;
  }

 private:
  Resolved r_;
  const Family& family_;
  Batch batch_;
  Outputs outputs_;
  CallLoop loop_;  ///< the loop of one call
};

}  // namespace

CaseCost RecurrentSystem::cost(const Resolved& r, bool on_device) const {
  const Case& c = r.c;
  CaseCost cost;
  costs::CallConfig call;
  call.head = head_of(c, family);
  if (c.form == "chunked" || r.form->ranked) {
    cost.token_operations = costs::chunked_flops_per_token(call.head, c.chunk);
    cost.token_bytes = costs::chunked_bytes_per_token(call.head, c.chunk);
  }
  call.head.operand_bytes = on_device ? bytes_of(r.promised.input) : 4;
  call.head.state_bytes = on_device ? bytes_of(r.promised.state) : 4;
  call.output_bytes = on_device ? bytes_of(r.promised.output) : 4;
  call.key_heads = c.Hk;
  call.value_heads = c.Hv;
  call.lengths =
      c.lengths.empty() ? std::vector<costs::Count>(static_cast<std::size_t>(c.B), c.T) : c.lengths;
  call.initial_state = c.state == "random";
  cost.bytes = costs::call_bytes(call);
  cost.operations = costs::call_flops(call, r.chunk);
  cost.operands = operands_of(r);
  return cost;
}

std::unique_ptr<WholeCall> RecurrentSystem::whole_call(const Resolved& r, int threads) const {
  require_one_call(r);
  return std::make_unique<RecurrentCall>(r, family, threads);
}

}  // namespace samestate
