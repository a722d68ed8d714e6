#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/api_program.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kCount = 10'000;  // of a program
constexpr uint64_t kRows = 5;

// Calls with buffers and data of their own each: of one collective, or of a program.
class LateCalls {
 public:
  LateCalls(ApiRank& rank, size_t calls)
      : rank_(rank), problem_(rank.CaseProblem(rank.group())), buffers_(calls) {}

  size_t count() const { return buffers_.size(); }

  Status Allocate(int64_t of_program) {
    for (Buffers& each : buffers_) {
      if (of_program != 0) {
        // The table of the first one's tune serves all.
        const bool tunes = of_program == 2 && &each == &buffers_.front();
        COTUNE_TRY(auto made, tunes ? ApiProgram::MakeFused(rank_, kCount / kRows, kRows)
                                    : ApiProgram::Make(rank_, ResidualNorm(kCount / kRows), kRows));
        each.program = std::move(made);
        continue;
      }
      COTUNE_TRY(
          void* const send,
          rank_.Allocate(rank_.group(), problem_.send_elements() * SizeBytes(problem_.cls.dtype)));
      COTUNE_TRY(void* const recv, rank_.Allocate(rank_.group(), recv_bytes()));
      each.send = send;
      each.recv = recv;
    }
    return {};
  }

  // Data that no call before has had.
  Status Fill() {
    for (Buffers& each : buffers_) each.salt = rank_.NextSalt();
    for (const Buffers& each : buffers_) {
      if (each.program != nullptr) {
        if (Status s = each.program->Fill(each.salt); !s) return s;
        continue;
      }
      const std::vector<std::byte> poison(recv_bytes(), std::byte{0xA5});
      if (Status s = rank_.memory().Write(each.recv, poison); !s) return s;
      const auto sent = SendData(problem_, rank_.rank(), Pattern::kExact, each.salt);
      if (Status s = rank_.memory().Write(each.send, sent); !s) return s;
    }
    return {};
  }

  Status Enqueue(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Buffers& each = buffers_[i];
      Status done = each.program != nullptr
                        ? each.program->Enqueue(rank_.group())
                        : ApiRank::Call(rank_.group(), problem_, each.send, each.recv);
      if (!done) return done;
    }
    return {};
  }

  // Compares what calls that have succeeded gave.
  Status Check(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Buffers& each = buffers_[i];
      const std::string what = "late call " + std::to_string(i);
      if (each.program != nullptr) {
        if (Status s = each.program->Check(what); !s) return s;
        continue;
      }
      COTUNE_TRY(const auto answer, rank_.memory().Read(each.recv, recv_bytes()));
      rank_.Expect(problem_, what, RightAnswer(problem_, rank_.rank(), Pattern::kExact, each.salt),
                   answer);
    }
    return {};
  }

 private:
  struct Buffers {
    void* send = nullptr;
    void* recv = nullptr;
    uint32_t salt = 0;                      // its data is made from it
    std::unique_ptr<ApiProgram> program{};  // nullptr: a collective
  };
  uint64_t recv_bytes() const { return problem_.recv_elements() * SizeBytes(problem_.cls.dtype); }

  ApiRank& rank_;
  Problem problem_;
  std::vector<Buffers> buffers_;
};

// Blocks until the stream is done, as a program does that does not ask the group meanwhile.
Status Synchronize(ApiRank& rank) {
  if (Status s = rank.memory().Synchronize(rank.stream()); !s) return s;
  return StatusOf(rank.group(), cotune_group_check(rank.group()), "check");
}

}  // namespace

// One rank comes late to calls that the others have enqueued. The runner reads the lines: when the
// calls began, and how they ended.
Status RunLate(ApiRank& rank, const Flags& flags) {
  const bool is_late = rank.rank() == flags.Number("victim", 0);
  const auto delay = std::chrono::milliseconds(flags.Number("delay-ms", 0));
  const bool in_graph = flags.Number("graph", 0) != 0;
  LateCalls calls(rank, static_cast<size_t>(flags.Number("calls", 3)));
  if (Status s = calls.Allocate(flags.Number("program", 0)); !s) return s;
  if (Status s = calls.Fill(); !s) return s;
  // Once before, so that kernels are compiled and calls can be captured.
  if (Status s = calls.Enqueue(0, calls.count()); !s) return s;
  if (Status s = Synchronize(rank); !s) return s;
  CallMemory::Replay replay;
  if (in_graph) {
    COTUNE_TRY(auto captured, rank.memory().Capture(
                                  rank.stream(), [&] { return calls.Enqueue(0, calls.count()); }));
    replay = captured;
  }
  if (Status s = calls.Fill(); !s) return s;
  std::vector<int32_t> everybody(static_cast<size_t>(rank.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  COTUNE_RETURN_IF_ERROR(rank.Split("met", everybody));

  PrintNow("began", "");
  if (is_late) std::this_thread::sleep_for(delay);
  // The late rank looks after each call; the others have all of theirs on the way.
  const size_t at_once = is_late && !in_graph ? 1 : calls.count();
  for (size_t begin = 0; begin < calls.count(); begin += at_once) {
    const size_t end = begin + at_once;
    Status done = in_graph ? replay() : calls.Enqueue(begin, end);
    if (done) done = Synchronize(rank);
    if (!done) {
      PrintNow("ended", ("error " + done.error().ToText()).c_str());
      return done;
    }
    if (Status s = calls.Check(begin, end); !s) return s;
  }
  PrintNow("ended", "fine");
  return {};
}

}  // namespace cotune::gputest
