// The problem: one collective on one group, without pointers or rank, equal on all ranks.
#ifndef COTUNE_CORE_PROBLEM_PROBLEM_H_
#define COTUNE_CORE_PROBLEM_PROBLEM_H_

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/problem/language.h"

namespace cotune {

// The lists of language.h as enumerations. Values equal those of the plugin ABI.
#define COTUNE_ENUMERATOR(enumerator, code, ...) enumerator = code,
enum class Collective : uint8_t { COTUNE_COLLECTIVES(COTUNE_ENUMERATOR) };
enum class Reduction : uint8_t { kNone = 0, COTUNE_REDUCTIONS(COTUNE_ENUMERATOR) };
// Stored dtypes are those of values only: collectives move them as kU8 and reduce none.
enum class Dtype : uint8_t { COTUNE_DTYPES(COTUNE_ENUMERATOR) };
#undef COTUNE_ENUMERATOR
// The use of a dtype: to compute with floats or integers, or to store values alone.
enum class NumberKind : uint8_t { kFloat, kInteger, kStored };
enum class MemoryKind : uint8_t { kHost = 1, kCuda = 2 };
// Symmetric: registered with the backend by all ranks together, so that peers can reach it
// directly.
enum class BufferClass : uint8_t { kPlain = 0, kSymmetric = 1 };

// All values in declaration order, for lists such as "--collective all".
std::span<const Collective> AllCollectives();
std::span<const Reduction> AllReductions();  // without kNone
std::span<const Dtype> AllDtypes();          // all that collectives take
std::span<const Dtype> AllValueDtypes();     // and the stored ones
std::span<const BufferClass> AllBufferClasses();

// Names as the user writes them: "all_reduce", "sum", "bf16", "host", "plain".
std::string_view Name(Collective collective);
std::string_view Name(Reduction reduction);  // "none" for kNone
std::string_view Name(Dtype dtype);
std::string_view Name(MemoryKind kind);
std::string_view Name(BufferClass buffer_class);
// Inverse of Name. kUsage with the list of known names and the nearest one.
Result<Collective> ParseCollective(std::string_view text);
Result<Reduction> ParseReduction(std::string_view text);
Result<Dtype> ParseDtype(std::string_view text);       // of a collective
Result<Dtype> ParseValueDtype(std::string_view text);  // of a value in a program
Result<BufferClass> ParseBufferClass(std::string_view text);

uint64_t SizeBytes(Dtype dtype);
NumberKind KindOf(Dtype dtype);
bool Reduces(Collective collective);

// The part of a dispatch key that does not change with size.
struct ProblemClass {
  Collective collective = Collective::kAllReduce;
  Dtype dtype = Dtype::kF32;
  Reduction reduction = Reduction::kNone;  // kNone exactly where the collective does not reduce
  MemoryKind memory = MemoryKind::kHost;
  BufferClass buffer_class = BufferClass::kPlain;
  bool in_place = false;
  int32_t world_size = 1;      // ranks of the group
  int32_t ranks_per_node = 1;  // on each host, 0 when they differ
  int32_t root = 0;            // broadcast only
  // Of the program whose first collective this is; 0: nothing stands around the collective.
  uint64_t program_digest = 0;

  auto operator<=>(const ProblemClass&) const = default;
};

// A class at one size. count follows NCCL's convention, bytes nccl-tests' (the larger of one rank's
// send and receive buffer); plugins/api/cotune_backend_v1.h has the table.
struct Problem {
  ProblemClass cls;
  uint64_t count = 0;  // elements
  uint64_t topology_digest = 0;

  uint64_t bytes() const;
  uint64_t send_elements() const;  // of one rank; for broadcast of the root
  uint64_t recv_elements() const;
  auto operator<=>(const Problem&) const = default;
};

// Largest count whose bytes() do not exceed `bytes`.
uint64_t CountForBytes(const ProblemClass& cls, uint64_t bytes);

// "all_reduce/sum/bf16/host/plain/out_of_place/world4x4", for broadcast with "/root0", in a program
// with "/program0123456789abcdef": stable; for logs and digests.
std::string ToText(const ProblemClass& cls);
// Inverse. kUsage names the part that is wrong.
Result<ProblemClass> ParseProblemClass(std::string_view text);
// ToText(cls) + "/count1024".
std::string ToText(const Problem& problem);

// kUsage when a field contradicts another (reduction on a broadcast, root outside the group, world
// size < 1, ...).
Status Validate(const ProblemClass& cls);

// Formulas of nccl-tests; GB = 1e9 bytes. seconds > 0.
double AlgorithmBandwidthGBps(uint64_t bytes, double seconds);
double BusBandwidthFactor(Collective collective, int world_size);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROBLEM_H_
