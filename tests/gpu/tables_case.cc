#include <string>
#include <vector>

#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

Status CheckCall(ApiRank& rank, const std::string& choice) {
  const uint32_t salt = rank.NextSalt();
  const Problem problem = rank.CaseProblem(rank.group());
  const uint64_t width = SizeBytes(problem.cls.dtype);
  COTUNE_TRY(void* const send, rank.Allocate(rank.group(), problem.send_elements() * width));
  COTUNE_TRY(void* const recv, rank.Allocate(rank.group(), problem.recv_elements() * width));
  const auto sent = SendData(problem, rank.rank(), Pattern::kExact, salt);
  if (Status s = rank.memory().Write(send, sent); !s) return s;
  const std::vector<std::byte> poison(problem.recv_elements() * width, std::byte{0xA5});
  if (Status s = rank.memory().Write(recv, poison); !s) return s;
  if (Status s = ApiRank::Call(rank.group(), problem, send, recv); !s) return s;
  if (Status s = rank.Await(rank.group(), rank.stream()); !s) return s;
  COTUNE_TRY(const auto answer, rank.memory().Read(recv, problem.recv_elements() * width));
  rank.Expect(problem, "by the table of rank 0, " + choice,
              RightAnswer(problem, rank.rank(), Pattern::kExact, salt), answer);
  return {};
}

}  // namespace

// A mismatch of the choice alone cannot be made through cotune.h: when a group is created or split,
// and in cotune_load, rank 0 alone reads a database, and every rank takes the table that follows
// from it or none does. So here ranks name different databases, and all of them have to run by that
// of rank 0. Kernels of different choices that meet are tried by plugins/cuda/cpu_runner.
Status RunTables(ApiRank& rank, const Flags& flags) {
  const std::string files[] = {flags.Text("own", ""), flags.Text("other", "")};
  const std::string choices[] = {flags.Text("choice", ""), flags.Text("other-choice", "")};
  for (size_t of_first_rank = 0; of_first_rank < 2; ++of_first_rank) {
    const size_t named = rank.rank() == 0 ? of_first_rank : 1 - of_first_rank;
    Status loaded = StatusOf(rank.group(), cotune_load(rank.group(), files[named].c_str()), "load");
    if (!loaded) return loaded;
    const std::string& choice = choices[of_first_rank];
    if (Status s = rank.CheckForced(rank.group(), choice); !s) return s;
    if (Status s = CheckCall(rank, choice); !s) return s;
  }
  return {};
}

}  // namespace cotune::gputest
