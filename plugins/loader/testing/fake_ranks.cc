#include "plugins/loader/testing/fake_ranks.h"

#include <thread>
#include <utility>
#include <vector>

#include "core/backend/device.h"
#include "core/benchmark/operand_buffers.h"
#include "fmt/format.h"
#include "plugins/loader/backend_adapter.h"
#include "sync/exchange/local_exchange.h"

namespace cotune {

FakeRank::FakeRank(RankExchange& rank_exchange, const Clock& rank_clock, const std::string& script,
                   const cotune_backend_api_t* table)
    : exchange(rank_exchange),
      clock(rank_clock),
      services(rank_exchange, rank_clock, {{"fake.script", script}}, nullptr) {
  backend = AdoptBackend(table, services.table(), -1, "test", {.check_threads = true}).value();
  GroupParameters parameters;
  parameters.name = "group";
  parameters.rank = exchange.rank();
  for (int rank = 0; rank < exchange.world_size(); ++rank) {
    parameters.job_ranks.push_back(kFirstJobRank + rank);
  }
  parameters.deadline_ns = clock.now_ns() + kPatienceNs;
  Result<std::unique_ptr<BackendGroup>> made = backend->CreateGroup(parameters);
  if (made) {
    group = std::move(*made);
  } else {
    group_error = made.error();
  }
}

Result<std::unique_ptr<Plan>> FakeRank::Prepare(const Problem& problem, const std::string& name) {
  const Program program = Program::SingleCollective(problem.cls).value();
  const Choice choice{.id = ChoiceId::FromBackend(backend->name(), name).value()};
  return group->Prepare(program, problem, choice, clock.now_ns() + kPatienceNs);
}

std::string FakeRank::RunAndCheck(const Problem& problem, const std::string& name) {
  constexpr uint32_t kSalt = 3;
  const std::unique_ptr<Device> device = MakeHostDevice(clock);
  const auto buffers = OperandBuffers::Allocate(*device, problem, exchange.rank()).value();
  if (const Status filled = buffers->Fill(kSalt); !filled) return filled.error().ToText();
  const auto plan = Prepare(problem, name);
  if (!plan) return plan.error().ToText();
  const Status ran = (*plan)->Run(
      {buffers->send(), buffers->recv(), nullptr, clock.now_ns() + kPatienceNs}, clock);
  if (!ran) return ran.error().ToText();
  const OperandCheck check = buffers->Check(kSalt).value();
  if (check.wrong_elements == 0 && !check.wrote_outside && !check.changed_send) return "";
  return fmt::format("{}: {} wrong elements{}{}", ToText(problem), check.wrong_elements,
                     check.wrote_outside ? ", wrote outside" : "",
                     check.changed_send ? ", changed send" : "");
}

void OnFakeRanks(int world_size, const std::string& script,
                 const std::function<void(int rank, FakeRank& self)>& body,
                 const cotune_backend_api_t* table) {
  const MonotonicClock clock;
  auto exchanges = sync::MakeLocalExchanges(world_size, clock);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      FakeRank self(*exchanges[rank], clock, script, table);
      body(rank, self);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Problem MakeProblem(Collective collective, Reduction reduction, Dtype dtype, int world_size,
                    uint64_t count, bool in_place) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = Reduces(collective) ? reduction : Reduction::kNone;
  problem.cls.dtype = dtype;
  problem.cls.in_place = in_place;
  problem.cls.world_size = world_size;
  problem.cls.ranks_per_node = world_size;
  problem.cls.root = collective == Collective::kBroadcast ? world_size - 1 : 0;
  problem.count = count;
  return problem;
}

}  // namespace cotune
