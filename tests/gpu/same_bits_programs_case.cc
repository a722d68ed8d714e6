#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/float16.h"
#include "core/base/sha256.h"
#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/program_buffers.h"
#include "tests/gpu/program_choices.h"
#include "tests/gpu/program_values.h"

namespace cotune::gputest {
namespace {

using Bytes = std::vector<std::byte>;

// Calls use these sets of data in turns, because all choices use the same scratch memory, where the
// data of earlier calls must not be right. The number of sets divides no number of steps that
// kernels keep there.
constexpr size_t kDataSets = 5;

uint64_t Mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

// From -4 to 4, with bits that no sum of several keeps.
float FloatOf(uint64_t random) {
  return std::ldexp(static_cast<float>(static_cast<int64_t>(random >> 40) - (1 << 23)), -21);
}

template <typename T>
void Put(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

Status PutElement(Dtype dtype, uint64_t random, std::byte* to) {
  switch (dtype) {
    case Dtype::kF32:
      Put(FloatOf(random), to);
      return {};
    case Dtype::kF64:
      Put(static_cast<double>(FloatOf(random)), to);
      return {};
    case Dtype::kBf16:
      Put(Bf16FromF32(FloatOf(random)), to);
      return {};
    case Dtype::kF16:
      Put(F16FromF32(FloatOf(random)), to);
      return {};
    case Dtype::kI32:
      Put(static_cast<int32_t>(random >> 40), to);
      return {};
    default:
      return Fail(ErrorCode::kUnsupported, "random data of this type is not made",
                  std::string(Name(dtype)));
  }
}

// A row has the same data whatever the number of rows is.
Result<Bytes> RandomInput(const Program& program, size_t input, uint64_t rows, int rank,
                          size_t set) {
  const ProgramInput& given = program.graph().inputs()[input];
  const uint64_t width = SizeBytes(given.type.dtype);
  Bytes bytes(program.BytesOf(static_cast<ValueIndex>(input), rows));
  const uint64_t of_rank = given.is_replicated ? 0 : static_cast<uint64_t>(rank) + 1;
  const uint64_t seed = Mixed(Mixed(input * 131 + of_rank) + set);
  for (uint64_t i = 0; i < bytes.size() / width; ++i) {
    COTUNE_RETURN_IF_ERROR(PutElement(given.type.dtype, Mixed(seed + i), &bytes[i * width]));
  }
  return bytes;
}

std::string DigestOf(const Bytes& bytes) {
  return Sha256Hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// The bits of one program on this rank: of the first choice that ran, for each number of rows.
class ProgramBits {
 public:
  ProgramBits(Rank& rank, std::string name, Program program)
      : rank_(rank), name_(std::move(name)), program_(std::move(program)) {}

  // Runs each choice whose bits do not depend on its parameters.
  Status Run(uint64_t rows) {
    COTUNE_TRY(const auto callers, ChoicesOf(rank_, name_, program_, rows));
    COTUNE_TRY(const auto buffers,
               ProgramBuffers::Allocate(rank_.job().device(), program_, rows, 0));
    COTUNE_TRY(const std::vector<ProgramValues> sets, RandomSets(rows));
    std::map<std::string, OutputsOfSets> first;  // by numerics class
    bool has_compared = false;
    for (const auto& caller : callers) {
      const std::string& numerics = caller->choice().numerics;
      if (numerics.empty()) continue;
      const auto [of_class, is_new] = first.try_emplace(numerics);
      for (size_t call = 0; call < (is_new ? kDataSets : 1); ++call) {
        const size_t set = calls_++ % kDataSets;
        COTUNE_TRY(const auto outputs, OutputsBy(*caller, *buffers, sets[set]));
        if (is_new) {
          of_class->second[set] = outputs;
        } else {
          has_compared = true;
          Compare(of_class->second[set], outputs,
                  fmt::format("{} of {} rows by {}", name_, rows, caller->id().text()),
                  "the first choice of its class");
        }
      }
    }
    if (!has_compared) return Fail(ErrorCode::kInternal, "no class has two choices", name_);
    bool has_order = false;
    for (const std::string_view order : {kRankOrderNumerics, kExactNumerics}) {
      const auto found = first.find(std::string(order));
      if (found == first.end()) continue;
      has_order = true;
      COTUNE_RETURN_IF_ERROR(CompareRanks(found->second, rows));
      // A row of a program whose values all have R rows depends on no other row.
      if (!program_.graph().needs_whole_shares()) CompareBatches(found->second, rows);
    }
    if (!has_order) return Fail(ErrorCode::kInternal, "no choice has such bits", name_);
    return {};
  }

 private:
  using OutputsOfSets = std::array<std::vector<Bytes>, kDataSets>;

  Result<std::vector<ProgramValues>> RandomSets(uint64_t rows) {
    std::vector<ProgramValues> sets(kDataSets);
    for (size_t set = 0; set < kDataSets; ++set) {
      for (size_t i = 0; i < program_.graph().inputs().size(); ++i) {
        COTUNE_TRY(Bytes input, RandomInput(program_, i, rows, rank_.job().rank(), set));
        sets[set].inputs.push_back(std::move(input));
      }
    }
    return sets;
  }

  Result<std::vector<Bytes>> OutputsBy(ChoiceCaller& caller, ProgramBuffers& buffers,
                                       const ProgramValues& values) {
    COTUNE_RETURN_IF_ERROR(buffers.Fill(values));
    LaunchArguments arguments;
    arguments.inputs = buffers.inputs();
    arguments.outputs = buffers.outputs();
    arguments.stream = rank_.job().device().stream();
    arguments.deadline_ns = rank_.CallDeadline();
    COTUNE_RETURN_IF_ERROR(caller.Launch(arguments, rank_.job().clock()));
    COTUNE_RETURN_IF_ERROR(rank_.Await(rank_.job()));
    ++rank_.findings().calls;
    rank_.findings().RanProgram(name_, caller.id());
    for (const BackendMember* const member : caller.members()) {
      ++rank_.findings().choices_by_backend[member->backend->name()];
    }
    return buffers.Outputs();
  }

  void Compare(const std::vector<Bytes>& right, const std::vector<Bytes>& seen,
               const std::string& what, const std::string& than) {
    for (size_t i = 0; i < seen.size(); ++i) {
      // Batches differ in their numbers of rows, and no output of either is empty.
      const uint64_t bytes = std::min(right[i].size(), seen[i].size());
      if (bytes == 0) rank_.findings().Wrong(what + ": an output is empty");
      if (std::equal(seen[i].begin(), seen[i].begin() + static_cast<int64_t>(bytes),
                     right[i].begin())) {
        continue;
      }
      rank_.findings().Wrong(fmt::format("rank {}: {}: output {} has other bits than by {}",
                                         rank_.job().rank(), what, i + 1, than));
    }
  }

  // Replicated outputs are equal on all ranks.
  Status CompareRanks(const OutputsOfSets& sets, uint64_t rows) {
    std::string digests;
    for (const std::vector<Bytes>& outputs : sets) {
      for (size_t i = 0; i < outputs.size(); ++i) {
        const ValueIndex value = program_.graph().outputs()[i].value;
        if (program_.graph().is_replicated(value)) digests += DigestOf(outputs[i]) + " ";
      }
    }
    Job& job = rank_.job();
    COTUNE_TRY(const StepResult all,
               job.exchange().Step(fmt::format("bits of {} at {} rows", name_, rows), digests, 0,
                                   job.clock().now_ns() + 2 * rank_.deadline_ns()));
    for (size_t other = 0; other < all.records.size(); ++other) {
      if (all.records[other] == digests) continue;
      rank_.findings().Wrong(fmt::format("rank {}: {} of {} rows: rank {} has other bits",
                                         job.rank(), name_, rows, other));
    }
    return {};
  }

  // The rows that two batches share have the same bits.
  void CompareBatches(const OutputsOfSets& sets, uint64_t rows) {
    const std::vector<Bytes>& outputs = sets.front();
    if (batch_.empty()) batch_ = outputs;
    Compare(batch_, outputs, fmt::format("{} of {} rows", name_, rows), "another number of rows");
    if (outputs.front().size() > batch_.front().size()) batch_ = outputs;
  }

  Rank& rank_;
  const std::string name_;
  const Program program_;
  size_t calls_ = 0;
  std::vector<Bytes> batch_;  // its data is the first set
};

}  // namespace

Status RunSameBitsOfPrograms(Rank& rank, const Flags& flags) {
  COTUNE_TRY(const auto texts, ProgramTexts(flags, rank.job().world_size()));
  for (const ProgramText& text : texts) {
    COTUNE_TRY(Program program, BoundTo(rank.job(), text));
    const bool has_rows = program.graph().has_rows();
    const int world_size = rank.job().world_size();
    std::vector<uint64_t> sizes;
    for (const std::string& wanted : flags.List("rows", "1,7,64")) {
      const uint64_t rows = std::strtoull(wanted.c_str(), nullptr, 10);
      sizes.push_back(FittingRows(program.graph(), rows, world_size));
    }
    ProgramBits bits(rank, text.name, std::move(program));
    for (const uint64_t rows : sizes) {
      COTUNE_RETURN_IF_ERROR(bits.Run(rows));
      if (!has_rows) break;
    }
  }
  return {};
}

}  // namespace cotune::gputest
