#include <numeric>
#include <string>
#include <utility>

#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kCount = 10'000;

struct Buffers {
  void* send = nullptr;
  void* recv = nullptr;
};

Result<Buffers> Allocate(ApiRank& rank, const Problem& problem) {
  const uint64_t element_bytes = SizeBytes(problem.cls.dtype);
  COTUNE_TRY(void* const send, rank.memory().Allocate(problem.send_elements() * element_bytes));
  COTUNE_TRY(void* const recv, rank.memory().Allocate(problem.recv_elements() * element_bytes));
  return Buffers{send, recv};
}

Status CallAndWait(ApiRank& rank, const ApiRank::Subgroup& on, const Problem& problem,
                   const Buffers& buffers) {
  Status done = ApiRank::Call(on.group.get(), problem, buffers.send, buffers.recv);
  if (done) done = rank.Await(on.group.get(), on.stream);
  return done;
}

// One call of each collective, whose values are compared.
Status CheckCalls(ApiRank& rank, const ApiRank::Subgroup& on) {
  for (const Collective collective : AllCollectives()) {
    const Problem problem =
        ProblemFor(on.group.get(), collective, Dtype::kBf16, Reduction::kSum, kCount);
    COTUNE_TRY(const Buffers buffers, Allocate(rank, problem));
    const uint64_t recv_bytes = problem.recv_elements() * SizeBytes(problem.cls.dtype);
    const std::vector<std::byte> poison(recv_bytes, std::byte{0xA5});
    if (Status s = rank.memory().Write(buffers.recv, poison); !s) return s;
    const uint32_t salt = rank.NextSalt();
    const std::vector<std::byte> sent = SendData(problem, rank.rank(), Pattern::kExact, salt);
    if (Status s = rank.memory().Write(buffers.send, sent); !s) return s;
    if (Status s = CallAndWait(rank, on, problem, buffers); !s) return s;
    COTUNE_TRY(const auto answer, rank.memory().Read(buffers.recv, recv_bytes));
    rank.Expect(problem, "in a group", RightAnswer(problem, rank.rank(), Pattern::kExact, salt),
                answer);
  }
  return {};
}

// The call of this rank when the others make an all_reduce of kCount elements, or a broadcast.
Problem ProblemOfRank(cotune_group* group, const std::string& what, bool is_odd) {
  const bool is_same_bytes = what == "dtype";
  Collective collective = Collective::kAllReduce;
  Dtype dtype = is_same_bytes ? Dtype::kF32 : Dtype::kBf16;
  uint64_t count = kCount;
  if (is_odd && what == "count") count *= 3;
  if (is_odd && what == "collective") collective = Collective::kAllGather;
  if (is_odd && is_same_bytes) dtype = Dtype::kI32;
  if (what == "root") collective = Collective::kBroadcast;
  const Reduction reduction = is_odd && what == "reduction" ? Reduction::kMax : Reduction::kSum;
  const int root = is_odd && what == "root" ? 1 : 0;
  return ProblemFor(group, collective, dtype, reduction, count, root);
}

Status CallProblemOfRank(ApiRank& rank, const ApiRank::Subgroup& on, const std::string& what,
                         bool is_odd) {
  const Problem problem = ProblemOfRank(on.group.get(), what, is_odd);
  COTUNE_TRY(const Buffers buffers, Allocate(rank, problem));
  PrintNow("called", ToText(problem).c_str());
  return CallAndWait(rank, on, problem, buffers);
}

// Two programs with equal collectives. Each rank gets the right values of its own.
Status CallProgramOfRank(ApiRank& rank, const ApiRank::Subgroup& on, bool is_odd) {
  const std::string operation = is_odd ? "neg" : "abs";
  COTUNE_TRY(
      const auto program,
      ApiProgram::Make(rank,
                       {operation, "%x = input bf16 [R, 100]\n%sum = all_reduce sum %x\n%y = " +
                                       operation + " %sum\nreturn %y\n"},
                       kCount / 100));
  if (Status s = program->Fill(rank.NextSalt()); !s) return s;
  PrintNow("called", operation.c_str());
  Status done = program->Enqueue(on.group.get());
  if (done) done = rank.Await(on.group.get(), on.stream);
  if (done) done = program->Check("beside ranks with another program");
  return done;
}

}  // namespace

// Calls that do not fit together are made in a group of their own. Its end, well or not, is what
// the case ends with; before, a new group of the same ranks has to work. The runner reads the
// lines.
Status RunMismatch(ApiRank& rank, const Flags& flags) {
  const std::string what = flags.Text("what", "count");
  const bool is_odd = rank.rank() == flags.Number("odd", 0);
  std::vector<int32_t> everybody(static_cast<size_t>(rank.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  COTUNE_TRY(ApiRank::Subgroup group, rank.Split("mismatched", everybody));
  if (Status s = CheckCalls(rank, group); !s) return s;
  // All ranks meet: who is still at the calls before would hear of the failure there.
  COTUNE_RETURN_IF_ERROR(rank.Split("met", everybody));
  Status outcome = what == "program" ? CallProgramOfRank(rank, group, is_odd)
                                     : CallProblemOfRank(rank, group, what, is_odd);
  PrintNow("outcome", outcome ? "fine" : ("error " + outcome.error().ToText()).c_str());
  group.group.reset();
  COTUNE_TRY(ApiRank::Subgroup next, rank.Split("after", everybody));
  if (Status s = CheckCalls(rank, next); !s) return s;
  PrintNow("after", rank.wrong() == 0 ? "right" : "wrong");
  return outcome;
}

}  // namespace cotune::gputest
