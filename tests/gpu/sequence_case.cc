#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "fmt/format.h"
#include "tests/gpu/cases.h"

namespace cotune::gputest {
namespace {

constexpr size_t kProblems = 16;
constexpr size_t kBatch = 16;

// Draws the same on every rank.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t end) { return engine_() % end; }
  template <typename T>
  T Of(std::span<const T> values) {
    return values[Below(values.size())];
  }
  // Up to `largest`; small numbers as often as large ones.
  uint64_t Count(uint64_t largest) {
    const auto bits = static_cast<uint64_t>(std::bit_width(largest));
    return Below(std::min(largest, uint64_t{1} << Below(bits + 1)) + 1);
  }

 private:
  std::mt19937_64 engine_;
};

struct Settings {
  uint64_t count_max = 0;
  uint64_t calls = 0;
  int64_t delay_us = 0;
};

// A call that is under way.
struct Pending {
  Job* job = nullptr;
  ChoiceCaller* caller = nullptr;
  Pattern pattern = Pattern::kExact;
  CallData data;
  std::unique_ptr<CallBuffers> buffers;
};

Result<std::vector<ReadyChoices>> DrawProblems(Rank& rank, Job& job, Draw& draw,
                                               const Settings& settings) {
  std::vector<ReadyChoices> problems;
  while (problems.size() < kProblems) {
    const auto collective = draw.Of(AllCollectives());
    const auto dtype = draw.Of(AllDtypes());
    const auto reduction = draw.Of(AllReductions());
    const uint64_t count = 1 + draw.Count(settings.count_max);
    const bool in_place = draw.Below(4) == 0 && collective != Collective::kAllToAll;
    const auto root = static_cast<int>(draw.Below(static_cast<uint64_t>(job.world_size())));
    COTUNE_TRY(ReadyChoices ready,
               rank.MakeReady(
                   job, Rank::ProblemOf(job, collective, dtype, reduction, count, in_place, root)));
    problems.push_back(std::move(ready));
  }
  return problems;
}

Result<Pending> DrawCall(Job& job, std::vector<ReadyChoices>& problems, Draw& draw, uint64_t salt) {
  ReadyChoices& ready = problems[draw.Below(problems.size())];
  Pending call;
  call.job = &job;
  call.caller = ready.callers[draw.Below(ready.callers.size())].get();
  call.pattern = Reduces(ready.problem.cls.collective)
                     ? (draw.Below(2) == 0 ? Pattern::kExact : Pattern::kRandom)
                     : Pattern::kBits;
  const Placement placement{draw.Below(2) * draw.Below(20), draw.Below(2) * draw.Below(20)};
  call.data = DataFor(ready.problem, job.rank(), call.pattern, static_cast<uint32_t>(salt), true);
  COTUNE_TRY(auto buffers,
             CallBuffers::Allocate(job.device(), ready.problem, job.rank(), placement));
  call.buffers = std::move(buffers);
  COTUNE_RETURN_IF_ERROR(call.buffers->Fill(call.data.sent, call.data.right));
  return call;
}

Status RunBatch(Rank& rank, const std::vector<Job*>& jobs, std::vector<Pending>& batch,
                uint64_t number, std::minstd_rand& own, int64_t delay_us) {
  for (Pending& call : batch) {
    // The test is about a rank that comes late.
    if (delay_us > 0 && own() % 4 == 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(static_cast<int64_t>(own()) % delay_us));
    }
    if (Status s = rank.Launch(*call.job, *call.caller, *call.buffers); !s) return s;
  }
  for (Job* job : jobs) {
    if (Status s = rank.Await(*job); !s) return s;
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    Pending& call = batch[i];
    const std::string where = fmt::format("call {} of batch {}", i, number);
    if (Status s = rank.CheckAnswer(*call.caller, *call.buffers, call.pattern, call.data, where);
        !s) {
      return s;
    }
  }
  return {};
}

Status RunOnJobs(Rank& rank, const std::vector<Job*>& jobs, uint64_t seed,
                 const Settings& settings) {
  Draw draw(seed);
  std::minstd_rand own(static_cast<unsigned>(seed + static_cast<uint64_t>(rank.job().rank()) + 1));
  std::vector<std::vector<ReadyChoices>> problems;
  for (Job* job : jobs) {
    COTUNE_TRY(std::vector<ReadyChoices> drawn, DrawProblems(rank, *job, draw, settings));
    for (const ReadyChoices& ready : drawn) {
      for (const auto& caller : ready.callers) {
        ++rank.findings().choices_by_backend[std::string(caller->id().backend())];
      }
    }
    problems.push_back(std::move(drawn));
  }
  uint64_t done = 0;
  for (uint64_t number = 0; done < settings.calls; ++number) {
    std::vector<Pending> batch;
    while (batch.size() < kBatch) {
      const uint64_t at = draw.Below(jobs.size());
      COTUNE_TRY(Pending call, DrawCall(*jobs[at], problems[at], draw, done + batch.size()));
      batch.push_back(std::move(call));
    }
    if (Status s = RunBatch(rank, jobs, batch, number, own, settings.delay_us); !s) return s;
    done += batch.size();
  }
  return {};
}

// "0,2/1,3" as lists of ranks.
std::vector<std::vector<int>> GroupsOf(const std::string& text) {
  std::vector<std::vector<int>> groups(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') groups.emplace_back();
    if (text[i] >= '0' && text[i] <= '9') groups.back().push_back(text[i] - '0');
  }
  return groups;
}

std::vector<int> AllRanksOf(const Job& job) {
  std::vector<int> ranks(static_cast<size_t>(job.world_size()));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  return ranks;
}

}  // namespace

Status RunSequence(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  const Settings settings{static_cast<uint64_t>(flags.Number("count-max", 200'000)),
                          static_cast<uint64_t>(flags.Number("calls", 480)),
                          flags.Number("delay-us", 0)};
  const auto seed = static_cast<uint64_t>(flags.Number("seed", 1));
  std::vector<std::unique_ptr<Job>> made;
  std::vector<Job*> jobs = {&job};
  const std::string split = flags.Text("split", "");
  if (!split.empty()) {
    jobs.clear();
    for (const std::vector<int>& ranks : GroupsOf(split)) {
      if (std::find(ranks.begin(), ranks.end(), job.rank()) == ranks.end()) continue;
      COTUNE_TRY(auto group, job.Split(fmt::format("of-{}", ranks.front()), ranks));
      made.push_back(std::move(group));
      jobs.push_back(made.back().get());
    }
  }
  for (int64_t number = 1; number < flags.Number("groups", 1); ++number) {
    COTUNE_TRY(auto group, job.Split(fmt::format("again-{}", number), AllRanksOf(job)));
    made.push_back(std::move(group));
    jobs.push_back(made.back().get());
  }
  if (!jobs.empty()) {
    if (Status s = RunOnJobs(rank, jobs, seed, settings); !s) return s;
  }
  // A rank without a group stays until the others are done.
  const Result<int64_t> met = rank.Meet(job, "end");
  return met ? Status{} : Propagate(met);
}

}  // namespace cotune::gputest
