#include "harness/processes/hand_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

/// The seconds between two unrequested reports of a rank, so that rank 0 gets at most a thousand a second
/// from each.
constexpr double kReportSeconds = 1e-3;
constexpr double kLeastInterval = 0.02;
constexpr double kMostInterval = 1.0;
/// A job that was running on this many lost ranks is assumed to be their cause.
constexpr int kMostLost = 3;
/// Process numbers of a rank begin here.
constexpr int kRankShift = 40;

}  // namespace

HandOut::HandOut(RankLink& link, RankHello own, std::function<void(const std::string&)> say)
    : link_(link),
      own_(std::move(own)),
      say_(std::move(say)),
      ranks_(static_cast<std::size_t>(link.ranks())) {
  ranks_[0].state = Rank::State::lost;
}

int HandOut::living() const {
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(),
                                        [](const Rank& r) { return r.state != Rank::State::lost; }));
}

void HandOut::send(int number, const RankMessage& message) {
  // A message that cannot be sent is lost together with its connection, which the next look at the link
  // notices.
  if (link_open_) (void)link_.send({number, RankFrame::Kind::text, text_of_message(message)});
}

void HandOut::run(Pool& pool, const NextJob& next, const JobObserver& observer,
                  const HandOutOptions& options) {
  const int jobs = pool.options().workers * pool.options().threads;
  ++run_;
  now_.emplace(
      Current{&next, &observer, &options, &pool.options(),
              PieceSizes(options.work, link_.ranks() <= kMostJudging ? living() + 1 : living(), jobs)});
  // Once the run has ended, for whatever reason, nothing of it matters any more.
  struct End {
    HandOut* of;
    ~End() {
      of->recall();
      for (Rank& rank : of->ranks_) {
        rank.open.clear();
        rank.wants = false;
        if (rank.state == Rank::State::serving || rank.state == Rank::State::called)
          rank.state = Rank::State::waiting;
      }
      of->back_.clear();
      of->here_.clear();
      of->now_.reset();
    }
  } const end{this};
  for (int number = 1; number < link_.ranks(); ++number) {
    if (ranks_[static_cast<std::size_t>(number)].state == Rank::State::waiting) call(number);
  }
  JobObserver here;
  here.elsewhere = this;
  here.stop = observer.stop;
  here.started = [&](const Job& job) { announce(here_.at(job.index)); };
  here.finished = [&](const Job& job, JobResult result) {
    auto node = here_.extract(job.index);
    now_->sizes.measure(job.work, result.seconds);
    if (observer.finished) observer.finished(node.mapped().job, std::move(result));
  };
  pool.run([this](std::int64_t served) { return next_here(served); }, here);
}

/// Returns the next job of the run, preferring one that came back.
std::optional<HandOut::Open> HandOut::take(std::int64_t served) {
  while (!back_.empty()) {
    Open open = std::move(back_.front());
    back_.pop_front();
    now_->sizes.give(open.job.work);
    if (!now_->options->again || now_->options->again(open.job)) return open;
  }
  std::optional<Job> job = (*now_->next)(served);
  if (!job) return std::nullopt;
  now_->sizes.give(job->work);
  return Open{std::move(*job)};
}

std::optional<Job> HandOut::next_here(std::int64_t served) {
  if (!judges() && back_.empty()) return std::nullopt;
  std::optional<Open> open = take(served);
  if (!open) return std::nullopt;
  Job job = open->job;
  job.index = ++serial_;
  here_.emplace(job.index, std::move(*open));
  return job;
}

void HandOut::announce(Open& open) {
  if (std::exchange(open.announced, true)) return;
  if (now_->observer->started) now_->observer->started(open.job);
}

bool HandOut::turn() {
  std::vector<RankFrame> frames;
  if (link_open_) link_open_ = link_.receive(frames);
  for (const RankFrame& frame : frames) {
    if (frame.rank <= 0 || frame.rank >= link_.ranks()) throw Error("a message of a rank that is none");
    if (ranks_[static_cast<std::size_t>(frame.rank)].state == Rank::State::lost) continue;
    if (frame.kind == RankFrame::Kind::lost) {
      lose(frame.rank, frame.text);
      continue;
    }
    RankMessage message = parse_message(frame.text);
    if (const auto* hello = std::get_if<RankHello>(&message)) greet(frame.rank, *hello);
    if (auto* report = std::get_if<RankReport>(&message)) settle(frame.rank, std::move(*report));
    if (const auto* failure = std::get_if<RankFailure>(&message))
      throw Error(fmt::format("rank {} on {}: {}", frame.rank,
                              ranks_[static_cast<std::size_t>(frame.rank)].where, failure->error));
  }
  for (int number = 1; !link_open_ && number < link_.ranks(); ++number)
    lose(number, "nothing carries its messages any more");
  if (!now_->recalled && now_->options->ending && now_->options->ending()) recall();
  feed();
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    const bool coming = rank.state == Rank::State::coming || rank.state == Rank::State::called;
    return !rank.open.empty() || (coming && !judges() && !now_->recalled);
  });
}

void HandOut::greet(int number, const RankHello& hello) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  rank.where = hello.where;
  const auto refuse = [&](const std::string& why) {
    throw Error(fmt::format("rank {} on {}: {}", number, hello.where, why));
  };
  if (!hello.refused.empty()) refuse(hello.refused);
  if (hello.build != own_.build)
    refuse(fmt::format("runs {}, but rank 0 runs {}; start the same samestate and plugins on all ranks",
                       hello.build, own_.build));
  if (hello.command != own_.command)
    refuse(fmt::format("was started as '{}', but rank 0 as '{}'; start all ranks with one command",
                       hello.command, own_.command));
  rank.state = Rank::State::waiting;
  call(number);
}

void HandOut::call(int number) {
  ranks_[static_cast<std::size_t>(number)].state = Rank::State::called;
  send(number, RankBegin{run_, *now_->workers,
                         std::clamp(kReportSeconds * link_.ranks(), kLeastInterval, kMostInterval)});
}

void HandOut::settle(int number, RankReport report) {
  if (report.run != run_) return;  // the report belongs to a run that ended earlier
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  rank.state = Rank::State::serving;
  for (const std::int64_t index : report.started) {
    const auto found = rank.open.find(index);
    if (found != rank.open.end()) announce(found->second);
  }
  for (RankReport::Done& done : report.done) {
    auto node = rank.open.extract(done.index);
    if (node.empty()) continue;
    announce(node.mapped());
    const Job& job = node.mapped().job;
    now_->sizes.measure(job.work, done.result.seconds);
    done.result.process += static_cast<std::uint64_t>(number) << kRankShift;
    if (now_->observer->finished) now_->observer->finished(job, std::move(done.result));
  }
  for (const std::int64_t index : report.returned) {
    auto node = rank.open.extract(index);
    if (node.empty() || (now_->recalled && !node.mapped().job.fresh)) continue;
    now_->sizes.take_back(node.mapped().job.work);
    back_.push_back(std::move(node.mapped()));
  }
  rank.wants |= report.wants;
}

void HandOut::lose(int number, const std::string& why) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  if (rank.state == Rank::State::lost) return;
  rank.state = Rank::State::lost;
  rank.wants = false;
  if (say_)
    say_(fmt::format("rank {}{} is lost ({}): the {} cases that it had are handed out again", number,
                     rank.where.empty() ? "" : " on " + rank.where, why, rank.open.size()));
  for (auto& [index, open] : std::exchange(rank.open, {})) {
    // A job that is not announced cannot have run for longer than a report takes.
    if (open.announced && ++open.lost >= kMostLost) {
      JobResult died;
      died.kind = JobResult::Kind::died;
      died.how = "rank";
      died.reason = fmt::format("{} ranks were lost while it ran on them, the last one: {}", open.lost, why);
      if (now_->observer->finished) now_->observer->finished(open.job, std::move(died));
      continue;
    }
    if (now_->recalled && !open.job.fresh) continue;
    now_->sizes.take_back(open.job.work);
    back_.push_back(std::move(open));
  }
}

/// Gives a piece to every rank that asked for one, as long as there are jobs.
void HandOut::feed() {
  const auto first_jobs =
      kFirstJobs * static_cast<std::size_t>(now_->workers->workers * now_->workers->threads);
  for (int number = 1; number < link_.ranks(); ++number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (!rank.wants) continue;
    RankPiece piece{run_};
    const double size = now_->sizes.next();
    const std::size_t most = size > 0.0 ? kMostJobs : first_jobs;
    for (double work = 0.0; piece.jobs.size() < most && (size <= 0.0 || work < size);) {
      std::optional<Open> open = take(Pool::kNoSubject);
      if (!open) break;
      work += open->job.work;
      piece.jobs.push_back(open->job);
      piece.jobs.back().index = ++serial_;
      rank.open.emplace(serial_, std::move(*open));
    }
    if (piece.jobs.empty()) return;
    rank.wants = false;
    send(number, piece);
  }
}

void HandOut::recall() {
  now_->recalled = true;
  std::erase_if(back_, [](const Open& open) { return !open.job.fresh; });
  for (int number = 1; number < link_.ranks(); ++number) {
    if (!ranks_[static_cast<std::size_t>(number)].open.empty()) send(number, RankRecall{run_});
  }
}

void run_on(HandOut* ranks, Pool& pool, const NextJob& next, const JobObserver& observer,
            const HandOutOptions& options) {
  if (ranks == nullptr) return pool.run(next, observer);
  ranks->run(pool, next, observer, options);
}

}  // namespace samestate
