#include "optimized/cpu/operators/expert_router.h"

#include "optimized/call.h"
#include "optimized/cpu/operators/routing.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {
namespace {

constexpr std::int64_t kTile = 32;  // tokens that a task processes at a time

}  // namespace

Outcome expert_router_logits_first(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N");
  const std::int64_t tiles = (call.tokens + kTile - 1) / kTile;
  const float* bias = call.parameter("bias") == 1 ? call.input("bias").data : nullptr;
  Block router;
  copy_transposed(rows_of(call.input("router"), 0, false), router);
  for_each_task(call.batch * tiles, call.threads, [&] {
    return [&, x = Block{}, logits = Block{}, routing = TokenRouting(call.parameter("K")),
            row = std::vector<float>(static_cast<std::size_t>(N))](std::int64_t task) mutable {
      const std::int64_t b = task / tiles;
      const std::int64_t begin = task % tiles * kTile;
      copy(rows_of(call.input("x"), b).rows(begin, std::min(kTile, call.tokens - begin)), x);
      project(x, router, logits, MatrixUnit::of(contract));
      for (std::int64_t i = 0; i < x.rows; ++i) {
        float* l = logits.row(i);
        for (std::int64_t e = 0; e < N && bias != nullptr; ++e) l[e] += bias[e];
        round_values(l, l, N, contract.input);
        round_values(l, rows_of(call.output("logits"), b).row(begin + i), N, contract.output);
        softmax_of(l, N, row.data());
        round_values(row.data(), rows_of(call.output("probabilities"), b).row(begin + i), N, contract.output);
        routing.choose(l, N, contract.input);
        std::fill(row.begin(), row.end(), 0.0F);
        for (std::size_t r = 0; r < routing.experts().size(); ++r)
          row[static_cast<std::size_t>(routing.experts()[r])] = routing.weights()[r];
        round_values(row.data(), rows_of(call.output("weights"), b).row(begin + i), N, contract.output);
      }
    };
  });
  return {};
}

Outcome load_balance_one_pass(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N");
  const std::int64_t K = call.parameter("K");
  const auto size = static_cast<std::size_t>(N);
  for_each_task(call.batch, call.threads, [&] {
    return [&, routing = TokenRouting(K), p = std::vector<float>(size)](std::int64_t b) mutable {
      std::vector<std::int64_t> assigned(size, 0);
      std::vector<float> mean(size, 0.0F);
      std::int64_t counted = 0;
      for (std::int64_t t = 0; t < call.tokens; ++t) {
        if (rows_of(call.input("mask"), b).row(t)[0] == 0.0F) continue;
        const float* logits = rows_of(call.input("logits"), b).row(t);
        ++counted;
        softmax_of(logits, N, p.data());
        for (std::size_t i = 0; i < size; ++i) mean[i] += p[i];
        routing.choose(logits, N, Format::fp32);
        for (std::int64_t e : routing.experts()) ++assigned[static_cast<std::size_t>(e)];
      }
      const std::int64_t whole = call.parameter("per_token") == 1 ? counted : counted * K;
      std::vector<float> load(size);
      float overlap = 0.0F;
      for (std::size_t i = 0; i < size; ++i) {
        load[i] = static_cast<float>(assigned[i]) / static_cast<float>(whole);
        mean[i] /= static_cast<float>(counted);
        overlap += load[i] * mean[i];
      }
      const float loss = call.input("alpha").data[0] * static_cast<float>(N) * overlap;
      const auto store = [&](std::string_view name, const float* x, std::int64_t count) {
        round_values(x, rows_of(call.output(name), b).row(0), count, contract.output);
      };
      store("load", load.data(), N);
      store("mean", mean.data(), N);
      store("loss", &loss, 1);
    };
  });
  return {};
}

}  // namespace samestate::cpu
