#include "plugins/cuda/group/call_record.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "plugins/sdk/call_text.h"

namespace cotune::cuda {
namespace {

using sdk::Problem;

// One number of a record: bits `begin` and up of word[2], above those of the number of the launch.
struct BitField {
  unsigned int begin;
  unsigned int bits;

  constexpr uint32_t Put(uint64_t value) const {
    return static_cast<uint32_t>(value & ((1ull << bits) - 1)) << begin;
  }
  constexpr uint32_t Get(uint32_t word) const {
    return word >> begin & static_cast<uint32_t>((1ull << bits) - 1);
  }
};

constexpr BitField kCollective{8, 3};
constexpr BitField kType{11, 3};
constexpr BitField kReduction{14, 3};
constexpr BitField kRoot{17, 3};
constexpr BitField kIsSymmetric{20, 1};
constexpr BitField kHighCount{21, 10};  // above the 32 bits of word[3]
constexpr BitField kIsInProgram{31, 1};
static_assert(kRanksMax <= 1 << kRoot.bits);
static_assert(std::size(sdk::kElementTypes) <= 1u << kType.bits);
static_assert(std::size(sdk::kReductions) <= 1u << kReduction.bits);

uint32_t DigestOf(const CallRecord& of_problem, uint64_t program, std::string_view choice) {
  const uint32_t words[] = {of_problem.word[2], of_problem.word[3], static_cast<uint32_t>(program),
                            static_cast<uint32_t>(program >> 32)};
  return XXH32(choice.data(), choice.size(), XXH32(words, sizeof(words), 0));
}

}  // namespace

CallRecord RecordOf(const Problem& problem, std::string_view choice) {
  const bool has_root = problem.collective == sdk::Collective::kBroadcast;
  CallRecord record{};
  record.word[2] =
      kCollective.Put(static_cast<uint64_t>(problem.collective)) |
      kType.Put(static_cast<uint64_t>(problem.type)) |
      kReduction.Put(sdk::Reduces(problem) ? static_cast<uint64_t>(problem.reduction) : 0) |
      kRoot.Put(has_root ? static_cast<uint64_t>(problem.root) : 0) |
      kIsSymmetric.Put(problem.is_symmetric ? 1 : 0) | kHighCount.Put(problem.count >> 32) |
      kIsInProgram.Put(problem.program_digest != 0 ? 1 : 0);
  record.word[3] = static_cast<uint32_t>(problem.count);
  record.word[1] = DigestOf(record, problem.program_digest, choice);
  return record;
}

std::string CallText(const CallRecord& record, int world_size, const ChoiceLimits& limits) {
  const uint32_t word = record.word[2];
  const sdk::CallFields fields{
      .collective = kCollective.Get(word),
      .type = kType.Get(word),
      .reduction = kReduction.Get(word),
      .root = kRoot.Get(word),
      .count = static_cast<uint64_t>(kHighCount.Get(word)) << 32 | record.word[3]};
  // The choice is known by its digest, into which that of a program goes as well.
  if (kIsInProgram.Get(word) != 0) return sdk::CallText(fields) + " in a program";
  std::string choice = "a choice that this rank does not know";
  // Another process may have written anything.
  const bool is_problem = fields.collective <= static_cast<int>(sdk::Collective::kBroadcast) &&
                          fields.type < std::size(sdk::kElementTypes) &&
                          fields.reduction < std::size(sdk::kReductions) &&
                          static_cast<int>(fields.root) < world_size && fields.count > 0;
  if (is_problem) {
    const Problem problem{.collective = static_cast<sdk::Collective>(fields.collective),
                          .reduction = static_cast<sdk::Reduction>(fields.reduction),
                          .type = static_cast<sdk::ElementType>(fields.type),
                          .count = fields.count,
                          .world_size = world_size,
                          .root = static_cast<int>(fields.root),
                          .is_symmetric = kIsSymmetric.Get(word) != 0};
    const std::vector<Choice> choices = ListChoices(problem, limits);
    const auto found = std::find_if(choices.begin(), choices.end(), [&](const Choice& listed) {
      return RecordOf(problem, listed.name).word[1] == record.word[1];
    });
    if (found != choices.end()) choice = found->name;
  }
  return fmt::format("{} by {}", sdk::CallText(fields), choice);
}

}  // namespace cotune::cuda
