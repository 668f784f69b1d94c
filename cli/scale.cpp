#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "harness/cases/case_line.h"
#include "harness/cases/shards.h"
#include "measure/scale/hand_out_model.h"
#include "reference/error.h"
#include "reports/records/json_lines.h"

namespace samestate::cli {
namespace {

struct ScaleOptions {
  std::vector<std::string> files;
  std::vector<int> ranks = {1, 2, 4, 16, 64, 256, 1024};
  HandOutModel model;
  int shards = 1;
};

constexpr double kBytesOfCase = 260.0;  ///< bytes sent to rank 0

/// Returns the times of the files' cases, in the order of their plans.
std::vector<CaseSeconds> costs_of(const std::vector<std::string>& files) {
  std::vector<CaseSeconds> costs;
  for (const std::string& path : files) {
    const RecordFile file = read_json_lines(path);
    std::vector<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t i = 0; i < file.records.size(); ++i) {
      if (file.places[i].ended) order.emplace_back(file.places[i].number, i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [number, i] : order)
      costs.push_back({judging_work(parse_case(file.records[i].line)), file.records[i].seconds});
  }
  return costs;
}

int run_scale(const ScaleOptions& options) {
  const std::vector<CaseSeconds> costs = costs_of(options.files);
  if (costs.empty())
    throw Error(options.files.front() + ": contains no case that ended; name the run file of a gate");
  HandOutModel model = options.model;
  if (model.cases == 0) model.cases = std::ssize(costs);
  double sum = 0.0;
  double dearest = 0.0;
  for (const CaseSeconds& c : costs) {
    sum += c.seconds;
    dearest = std::max(dearest, c.seconds);
  }
  fmt::print("{} recorded cases took {:.1f} s, {:.2f} ms on average, at most {:.2f} s; {} cases handed out\n",
             costs.size(), sum, 1e3 * sum / static_cast<double>(costs.size()), dearest, model.cases);
  fmt::print("{:>6} {:>7} {:>12} {:>11} {:>7} {:>8} {:>9} {:>12}\n", "ranks", "shards", "seconds",
             "efficiency", "idle", "rank 0", "pieces", "MB to rank 0");
  for (const int ranks : options.ranks) {
    model.ranks = ranks;
    model.shards = std::min(ranks, options.shards);
    const HandOutTime t = time_of(costs, model);
    fmt::print("{:>6} {:>7} {:>12.1f} {:>9.1f} % {:>5.1f} % {:>6.1f} % {:>9} {:>12.1f}\n", ranks,
               model.shards, t.seconds, 100.0 * t.efficiency, 100.0 * t.idle, 100.0 * t.rank_0, t.pieces,
               1e-6 * kBytesOfCase * static_cast<double>(model.cases) / model.shards);
  }
  return kPass;
}

}  // namespace

Command add_scale(CLI::App& app) {
  auto options = std::make_shared<ScaleOptions>();
  app.footer(
      "Computes from the seconds that the cases of a gate took how long the same cases, or more of "
      "them, would take on a\n"
      "given number of ranks with one thread each, if they are handed out as `mpirun samestate "
      "gate` does it. Efficiency is\n"
      "the seconds of all cases / (ranks x seconds of the run); rank 0 is the share of the time in "
      "which it hands out cases\n"
      "and takes results. With shards each shard has its own rank 0 (docs/do/scale.md).\n"
      "\n"
      "  samestate gate --device cpu --threads 1 --jsonl gate.jsonl\n"
      "  samestate scale gate.jsonl --cases 1000000 --ranks 64,1024\n"
      "  samestate scale gate.jsonl --cases 100000000 --ranks 1024 --shards 32");
  app.add_option("FILE", options->files, "run files of gates that ran with --threads 1")
      ->required()
      ->check(named());
  app.add_option("--ranks", options->ranks, "numbers of ranks, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--shards", options->shards,
                 "number of independent runs with equal parts, as with --shard I/N")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--cases", options->model.cases,
                 "number of cases to hand out, repeating those of the files (0: as many as they contain)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  return [options] { return run_scale(*options); };
}

}  // namespace samestate::cli
