#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kReplays = 3;

struct ExchangeBuffers {
  void* send = nullptr;
  void* recv = nullptr;
};

class Exchange {
 public:
  Exchange(ApiRank& rank, const Problem& problem, ExchangeBuffers buffers)
      : rank_(rank),
        problem_(problem),
        recv_bytes_(problem.recv_elements() * SizeBytes(problem.cls.dtype)),
        buffers_(buffers) {}

  Status Enqueue() { return ApiRank::Call(rank_.group(), problem_, buffers_.send, buffers_.recv); }

  // Runs `call` on new data and compares the answer.
  Status RunAndCompare(const CallMemory::Replay& call, std::string_view what) {
    const uint32_t salt = rank_.NextSalt();
    const auto sent = SendData(problem_, rank_.rank(), Pattern::kBits, salt);
    COTUNE_RETURN_IF_ERROR(rank_.memory().Write(buffers_.send, sent));
    COTUNE_RETURN_IF_ERROR(
        rank_.memory().Write(buffers_.recv, std::vector<std::byte>(recv_bytes_, std::byte{0xA5})));
    COTUNE_RETURN_IF_ERROR(call());
    COTUNE_RETURN_IF_ERROR(rank_.Await(rank_.group(), rank_.stream()));
    COTUNE_TRY(const auto answer, rank_.memory().Read(buffers_.recv, recv_bytes_));
    rank_.Expect(problem_, what, RightAnswer(problem_, rank_.rank(), Pattern::kBits, salt), answer);
    return {};
  }

 private:
  ApiRank& rank_;
  const Problem problem_;
  const uint64_t recv_bytes_;
  const ExchangeBuffers buffers_;
};

Result<void*> Buffer(ApiRank& rank, bool is_registered, uint64_t bytes) {
  if (!is_registered) return rank.memory().Allocate(bytes);
  void* data = nullptr;
  COTUNE_RETURN_IF_ERROR(StatusOf(rank.group(), cotune_memory_allocate(rank.group(), bytes, &data),
                                  "memory_allocate"));
  return data;
}

}  // namespace

// all_to_all of --count bf16 a block between plain and registered buffers, captured and not: each
// call gives the right answer, or its capture is refused, if only one buffer is registered.
Status RunCapturedExchange(ApiRank& rank, const Flags& flags) {
  const auto count = static_cast<uint64_t>(flags.Number("count", 1 << 20));
  const Problem problem =
      ProblemFor(rank.group(), Collective::kAllToAll, Dtype::kBf16, Reduction::kNone, count);
  COTUNE_RETURN_IF_ERROR(rank.NoteBackends(rank.group(), problem));
  const uint64_t width = SizeBytes(problem.cls.dtype);
  for (const bool sends_registered : {false, true}) {
    for (const bool receives_registered : {false, true}) {
      const std::string what = fmt::format("{} to {}", sends_registered ? "registered" : "plain",
                                           receives_registered ? "registered" : "plain");
      COTUNE_TRY(void* const send, Buffer(rank, sends_registered, problem.send_elements() * width));
      COTUNE_TRY(void* const recv,
                 Buffer(rank, receives_registered, problem.recv_elements() * width));
      Exchange exchange(rank, problem, {send, recv});
      const auto enqueue = [&] { return exchange.Enqueue(); };
      COTUNE_RETURN_IF_ERROR(exchange.RunAndCompare(enqueue, what));
      const Result<CallMemory::Replay> replay = rank.memory().Capture(rank.stream(), enqueue);
      const bool is_refused = !replay && replay.error().code == ErrorCode::kUnsupported;
      if (is_refused && sends_registered != receives_registered) {
        rank.Note(what, "");
      } else {
        COTUNE_RETURN_IF_ERROR(replay);
        for (uint64_t i = 0; i < kReplays; ++i) {
          COTUNE_RETURN_IF_ERROR(exchange.RunAndCompare(*replay, what + ", captured"));
        }
      }
      // The group goes on.
      COTUNE_RETURN_IF_ERROR(exchange.RunAndCompare(enqueue, what + ", afterwards"));
    }
  }
  return {};
}

}  // namespace cotune::gputest
