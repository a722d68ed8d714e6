#include "core/testing/database_entries.h"

#include <array>
#include <string>
#include <utility>

#include "core/problem/program_graph.h"

namespace cotune {
namespace {

Verdict VerdictForTest(std::string_view id, int64_t median_ns, size_t samples) {
  Verdict verdict{.id = IdForTest(id)};
  for (size_t i = 0; i < samples; ++i) {
    const auto offset = static_cast<int64_t>(i * 7919 % 101) - 50;
    verdict.samples_ns.push_back(median_ns + offset);
    verdict.skews_ns.push_back(100 + offset);
  }
  verdict.repetitions = 10;
  verdict.median_ns = median_ns;
  verdict.interval_low_ns = median_ns - 40;
  verdict.interval_high_ns = median_ns + 40;
  return verdict;
}

std::string RandomText(std::mt19937_64& random) {
  std::string text(random() % 12, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 26);
  return text;
}

}  // namespace

const std::string_view kProgramTextForTest =
    "%0 = input f32 [R, 4]\n"
    "%1 = all_reduce sum %0\n"
    "%2 = relu %1\n"
    "return %2\n";

uint64_t ProgramDigestForTest() { return ProgramGraph::Parse(kProgramTextForTest)->digest(); }

ChoiceId IdForTest(std::string_view text) { return ChoiceId::Parse(text).value(); }

DatabaseEntry EntryForTest(uint64_t count) {
  DatabaseEntry entry{
      .fingerprint = {{{"cores", "2"}, {"cpu_model", "model a"}}, {{"host", "1.0"}}, "eager"},
      .cell = {},
      .winner = {.id = IdForTest("host/ring?chunk=65536")}};
  CellResult& cell = entry.cell;
  cell.problem.cls.reduction = Reduction::kSum;
  cell.problem.cls.world_size = 4;
  cell.problem.cls.ranks_per_node = 4;
  cell.problem.count = count;
  cell.problem.topology_digest = 0x1234567890abcdef;
  cell.verdicts.push_back(VerdictForTest("host/ring?chunk=65536", 35'000, 50));
  cell.verdicts.push_back(VerdictForTest("host/tree", 41'200, 50));
  cell.verdicts.back().is_default = true;
  cell.verdicts.push_back(VerdictForTest("host/two_shot", 90'000, 3));
  cell.verdicts.back().outcome = Outcome::kOutpaced;
  Verdict wrong{.id = IdForTest("host/one_shot")};
  wrong.outcome = Outcome::kWrongResult;
  wrong.reason = "rank 2: element 7 is 3, not 4";
  wrong.wrong_elements = 12;
  cell.verdicts.push_back(std::move(wrong));
  cell.refusals = {{"host/hierarchy", "one host only"}, {"cuda", "no device"}};
  cell.start_mode = StartMode::kWindow;
  cell.invalid_rounds = 2;
  cell.buffer_copies = 5;
  cell.sm_clock_mhz = 1980;
  cell.throttle_reasons = "hw_thermal,sw_power_cap";
  entry.fingerprint.connections = {{"nccl", "NVLink between all ranks"},
                                   {"ucx", "tcp/eth0 between all ranks"}};
  cell.verdicts[0].warm_median_ns = 31'000;
  entry.winner.median_ns = 35'000;
  entry.winner.runner_up = IdForTest("host/tree");
  entry.winner.runner_up_median_ns = 41'200;
  entry.winner.fallback = IdForTest("host/tree");
  entry.winner.fallback_median_ns = 41'200;
  entry.winner.next_best = {IdForTest("host/two_shot")};
  entry.winner.why =
      "15.0 % faster than the default host/tree (41.2 us); 99 % interval 35.0-35.0 us";
  entry.cotune_version = "0.1.0";
  entry.measured_unix_s = 1'700'000'000;
  return entry;
}

DatabaseEntry RandomEntryForTest(std::mt19937_64& random) {
  DatabaseEntry entry = EntryForTest(uint64_t{1} << random() % 6);
  const std::array<const char*, 4> choices = {"host/ring", "host/tree?arity=2", "fake/slow",
                                              "host/two_shot"};
  entry.fingerprint.machine["cpu_model"] = "model " + std::to_string(random() % 3);
  if (random() % 2 == 0) entry.fingerprint.backends["fake"] = "0." + std::to_string(random() % 2);
  if (random() % 2 == 0) entry.fingerprint.connections["ucx"] = "posix between all ranks";
  if (random() % 2 == 0) entry.fingerprint.connections.erase("nccl");
  entry.fingerprint.measuring_mode = random() % 2 == 0 ? "eager" : "graph";
  entry.cell.problem.cls.dtype = static_cast<Dtype>(1 + random() % 3);
  entry.cell.problem.cls.in_place = random() % 2 == 0;
  if (random() % 2 == 0) {
    entry.cell.problem.cls.program_digest = ProgramDigestForTest();
    entry.program_text = kProgramTextForTest;
  }
  entry.cell.buffer_copies = 1 + static_cast<int32_t>(random() % 3);
  entry.cell.sm_clock_mhz = static_cast<int32_t>(random() % 3);
  entry.cell.throttle_reasons = RandomText(random);
  entry.cell.is_unsteady = random() % 3 == 0;
  entry.measured_unix_s = static_cast<int64_t>(random() % 3);
  entry.cell.verdicts.clear();
  for (uint64_t i = 0, n = random() % 4; i < n; ++i) {
    Verdict verdict{.id = IdForTest(choices[random() % choices.size()])};
    verdict.outcome = static_cast<Outcome>(1 + random() % 6);
    verdict.reason = RandomText(random);
    verdict.numerics = RandomText(random);
    for (uint64_t s = 0, samples = random() % 3; s < samples; ++s) {
      verdict.samples_ns.push_back(
          static_cast<int64_t>(random()));  // of both signs: nothing may overflow
      verdict.skews_ns.push_back(static_cast<int64_t>(random()));
    }
    verdict.median_ns = static_cast<int64_t>(random());
    verdict.interval_low_ns = static_cast<int64_t>(random());
    verdict.warm_median_ns = static_cast<int64_t>(random());
    entry.cell.verdicts.push_back(std::move(verdict));
  }
  entry.winner.id = IdForTest(choices[random() % choices.size()]);
  if (random() % 2 == 0) entry.winner.runner_up.reset();
  if (random() % 2 == 0) entry.winner.fallback.reset();
  entry.winner.next_best.clear();
  for (uint64_t i = 0, n = random() % (kNextBestMax + 1); i < n; ++i) {
    entry.winner.next_best.push_back(IdForTest(choices[random() % choices.size()]));
  }
  entry.winner.why = RandomText(random);
  return entry;
}

}  // namespace cotune
