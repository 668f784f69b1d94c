#include "oracles/named_points.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/stage_points.h"
#include "oracles/systems/weight_gradient.h"
#include "reference/backward/chunk.h"
#include "reference/backward/l2norm.h"
#include "reference/backward/mixture_of_experts.h"
#include "reference/backward/softmax_attention.h"
#include "reference/channel_gates.h"
#include "reference/error.h"
#include "reference/experts.h"
#include "reference/gated_delta_step.h"
#include "reference/group_limited_router.h"
#include "reference/latent_attention.h"
#include "reference/layers/dendritic_attention.h"
#include "reference/layers/gated_attention.h"
#include "reference/layers/gated_delta_net.h"
#include "reference/layers/mamba.h"
#include "reference/layers/mamba2.h"
#include "reference/layers/multi_scale_retention.h"
#include "reference/layers/qwen3_next_moe.h"
#include "reference/linear_attention.h"
#include "reference/online_softmax.h"
#include "reference/retention.h"

namespace samestate {
namespace {

/// Identifies a change that switches a point: only names of points contain a full stop.
constexpr char kOfTable = '.';

std::vector<const PointTable*> sorted_tables() {
  std::vector<const PointTable*> all{&points::attention_backward,
                                     &points::channel_chunk,
                                     &points::chunk_backward,
                                     &points::dendritic_attention,
                                     &points::dendritic_projections,
                                     &points::dendritic_router,
                                     &points::expert_stages,
                                     &points::experts,
                                     &points::experts_backward,
                                     &points::explicit_chunk,
                                     &points::gated_attention,
                                     &points::gated_delta_net,
                                     &points::gated_delta_net_output,
                                     &points::gated_delta_net_rule,
                                     &points::gated_delta_step,
                                     &points::group_limited_router,
                                     &points::head_gradients,
                                     &points::l2norm_backward,
                                     &points::latent_attention,
                                     &points::latent_attention_rotary,
                                     &points::linear_attention,
                                     &points::linear_backward,
                                     &points::linear_map,
                                     &points::mamba2_mixer,
                                     &points::mamba_mixer,
                                     &points::mixture_of_experts,
                                     &points::multi_scale_retention,
                                     &points::multi_scale_retention_core,
                                     &points::normalised_retention,
                                     &points::online_softmax,
                                     &points::open_routing,
                                     &points::qwen3_next_moe,
                                     &points::residual_rms_norm,
                                     &points::retention,
                                     &points::short_convolution,
                                     &points::softmax_attention,
                                     &points::state_space_duality,
                                     &points::weight_gradient};
  std::ranges::sort(all, [](const PointTable* x, const PointTable* y) {
    return std::pair(x->tier, x->name) < std::pair(y->tier, y->name);
  });
  return all;
}

SkippedPoints with_their_kin(const std::vector<std::string_view>& names) {
  SkippedPoints out;
  for (const std::string_view name : names) {
    const Point switched = require_point(name);
    for (const Point& point : named_points()) {
      if (point == switched || point.row().of == name) out.add(point);
    }
  }
  out.sort();
  return out;
}

}  // namespace

std::span<const PointTable* const> point_tables() {
  static const std::vector<const PointTable*> all = sorted_tables();
  return all;
}

const std::vector<Point>& named_points() {
  static const std::vector<Point> all = [] {
    std::vector<Point> out;
    for (const PointTable* table : point_tables()) {
      for (const PointRow& row : table->rows) out.emplace_back(*table, row);
    }
    return out;
  }();
  return all;
}

std::optional<Point> point_named(std::string_view name) {
  const auto& all = named_points();
  const auto found = std::ranges::find(all, name, &Point::name);
  return found == all.end() ? std::nullopt : std::optional<Point>(*found);
}

Format format_at(const Contract& contract, PointUse use) {
  const bool sixteen = contract.input == Format::bf16 || contract.input == Format::fp16;
  if (use != PointUse::product && sixteen) return contract.input;
  return use == PointUse::stored ? Format::none : unit_operand(contract);
}

std::vector<std::string_view> switched_points(std::string_view contract) {
  std::vector<std::string_view> out;
  if (contract.find(kOfTable) == std::string_view::npos) return out;
  while (!contract.empty()) {
    const std::string_view change = contract.substr(0, contract.find('+'));
    contract.remove_prefix(std::min(change.size() + 1, contract.size()));
    const std::string_view name = change.substr(0, change.find(':'));
    if (name.find(kOfTable) != std::string_view::npos) out.push_back(name);
  }
  return out;
}

const SkippedPoints* switched_by(const Contract& contract) {
  const std::vector<std::string_view> names = switched_points(contract.name);
  if (names.empty()) return nullptr;
  static std::mutex mutex;
  static std::map<std::string, SkippedPoints, std::less<>> known;
  const std::scoped_lock lock(mutex);
  const auto found = known.find(contract.name);
  return &(found != known.end() ? found : known.emplace(contract.name, with_their_kin(names)).first)->second;
}

std::vector<std::string> nearest_points(std::string_view text) {
  std::vector<std::string> names, same;
  for (const Point& point : named_points()) {
    names.push_back(point.name());
    if (point.row().name == text) same.push_back(point.name());
  }
  if (!same.empty()) return same;
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::vector<std::string_view> near = nearest_names(text, known);
  return {near.begin(), near.end()};
}

Point require_point(std::string_view name) {
  if (const std::optional<Point> point = point_named(name)) return *point;
  const std::vector<std::string> near = nearest_points(name);
  throw Error(fmt::format("no rounding point '{}'{}; `samestate list points` has all", name,
                          near.empty() ? "" : fmt::format("; nearest: {}", fmt::join(near, ", "))));
}

bool switches(const Contract& contract, Point point, std::string_view text) {
  const Format format = format_at(contract, point.row().use);
  if (format == Format::none) {
    const bool product = point.row().use == PointUse::product;
    throw Error(fmt::format(
        "{}:{} has no place beside input:{}, qk:{}: {}", point.name(), text, name_of(contract.input),
        name_of(contract.qk),
        product ? "it is a product, whose operands a tf32 unit rounds; take a contract of tf32"
                : "what is stored there has the format of the input; take a contract of bf16 or fp16"));
  }
  const bool fp32 = text == name_of(Format::fp32);
  if (fp32 || text == name_of(format)) return fp32 != point.row().only_if_named;
  throw Error(fmt::format(
      "{}:{}: no such value; {} takes fp32, where a kernel rounds nothing there, or {}; this contract has {}",
      point.name(), text, point.name(), name_of(format),
      name_of(point.row().only_if_named ? Format::fp32 : format)));
}

std::string_view switched_value(const Contract& contract, Point point) {
  return name_of(point.row().only_if_named ? format_at(contract, point.row().use) : Format::fp32);
}

}  // namespace samestate
