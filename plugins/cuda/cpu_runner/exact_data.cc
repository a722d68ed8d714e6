#include "plugins/cuda/cpu_runner/exact_data.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <string>

#include "core/problem/bounded.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/expected_collective.h"
#include "core/problem/problem.h"
#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda::cpu {
namespace {

// The words of the evaluator are those of kernels in lower case.
std::string Lower(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

Dtype DtypeOf(std::string_view type) { return ParseDtype(Lower(type)).value(); }

cotune::Problem EvaluatedProblem(const Problem& p) {
  cotune::Problem result;
  result.cls.collective = ParseCollective(Lower(p.collective)).value();
  if (!p.reduction.empty()) result.cls.reduction = ParseReduction(Lower(p.reduction)).value();
  result.cls.dtype = DtypeOf(p.type);
  result.cls.world_size = result.cls.ranks_per_node = p.world_size;
  const bool has_root = result.cls.collective == Collective::kBroadcast;
  result.cls.root = has_root ? p.root : 0;
  result.count = p.count;
  return result;
}

std::vector<std::byte> ToStd(const Bytes& bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

Bytes FromStd(const std::vector<std::byte>& bytes) {
  Bytes result(bytes.size());
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

std::vector<double> ValuesOf(const EvaluatedValue& value) {
  std::vector<double> values;
  for (const Bounded& each : value.floats) values.push_back(each.value);
  return values;
}

}  // namespace

size_t ElementBytes(std::string_view type) {
  if (type == "F64" || type == "I64") return 8;
  if (type == "F32" || type == "I32") return 4;
  return type == "U8" ? 1 : 2;
}

uint64_t SendElements(const Problem& p) {
  const bool has_blocks = p.collective == "REDUCE_SCATTER" || p.collective == "ALL_TO_ALL";
  return p.count * (has_blocks ? static_cast<uint64_t>(p.world_size) : 1);
}

uint64_t ReceiveElements(const Problem& p) {
  const bool has_blocks = p.collective == "ALL_GATHER" || p.collective == "ALL_TO_ALL";
  return p.count * (has_blocks ? static_cast<uint64_t>(p.world_size) : 1);
}

Bytes ExactInput(const Problem& p, int rank, unsigned int salt) {
  EvaluatedValue input = Zeros({.dtype = DtypeOf(p.type)}, SendElements(p));
  for (uint64_t i = 0; i < SendElements(p); ++i) {
    const uint64_t mixed = (i * 11 + i / 37 + static_cast<uint64_t>(rank) * 17 + salt * 5) % 31;
    int value = static_cast<int>(mixed) - (p.type == "U8" ? 0 : 15);
    if (p.reduction == "PRODUCT") value = mixed % 4 == 0 ? 2 : 1;
    if (input.floats.empty()) {
      input.integers[i] = value;
    } else {
      input.floats[i].value = value;
    }
  }
  return FromStd(Encode(input));
}

Bytes ExpectedOutput(const Problem& p, int rank, const std::vector<Bytes>& inputs) {
  SentByRanks sent;
  for (const Bytes& input : inputs) sent.push_back(ToStd(input));
  return FromStd(ExpectedBytes(EvaluatedProblem(p), rank, sent).value());
}

std::vector<double> UnroundedOutput(const Problem& p, int rank, const std::vector<Bytes>& inputs) {
  cotune::Problem wide = EvaluatedProblem(p);
  wide.cls.dtype = Dtype::kF64;
  SentByRanks sent;
  for (const Bytes& input : inputs) {
    const std::vector<double> floats = FloatsOf(p.type, input);
    const auto bytes = std::as_bytes(std::span(floats));
    sent.emplace_back(bytes.begin(), bytes.end());
  }
  const EvaluatedValue expected = ExpectedValue(wide, rank, sent).value();
  return ValuesOf(expected);
}

std::vector<double> FloatsOf(std::string_view type, const Bytes& bytes) {
  const uint64_t elements = bytes.size() / ElementBytes(type);
  return ValuesOf(Decode({.dtype = DtypeOf(type)}, elements, ToStd(bytes)));
}

double Rounded(std::string_view type, double value) { return RoundTo(DtypeOf(type), value); }

std::vector<Bytes> EscapedInputs(const Problem& p) {
  constexpr uint64_t kEmpty = ~kEscapeMask;
  constexpr uint64_t kHalves[] = {kEmpty, 0, kEmpty ^ 1, kEmpty ^ 2, ~0ull, kEmpty & 0xFFFFFFFF};
  std::vector<Bytes> inputs;
  for (int r = 0; r < p.world_size; ++r) {
    Bytes input(SendElements(p) * ElementBytes(p.type));
    for (size_t at = 0; at < input.size(); at += sizeof(uint64_t)) {
      const size_t half = at / sizeof(uint64_t);
      // Both halves of a pack go through all of them, and other ranks are elsewhere.
      const size_t pack = half / 2 + 7 * static_cast<size_t>(r);
      const uint64_t bits = kHalves[(half % 2 == 0 ? pack / 6 : pack) % 6];
      std::memcpy(input.data() + at, &bits, std::min(sizeof(bits), input.size() - at));
    }
    inputs.push_back(input);
  }
  return inputs;
}

}  // namespace cotune::cuda::cpu
