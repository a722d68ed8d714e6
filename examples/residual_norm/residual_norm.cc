// Runs all_reduce + residual + RMSNorm as one program on all ranks, by the tuned table, and checks
// it.
//
//   cotune run --ranks 2 -- ./residual_norm add_residual_norm.cotune [DATABASE]
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cotune/cotune.h"

namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kColumns = 8192;

// bf16 keeps the upper half of a float; the values here need no rounding.
uint16_t ToBf16(float value) {
  uint32_t bits = 0;
  static_assert(sizeof(bits) == sizeof(value));
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}
float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

int Fail(const cotune_group* group) {
  std::fprintf(stderr, "%s\n", cotune_last_error(group));
  return cotune_exit_code(cotune_last_result(group));
}

int Run(cotune_group* group, const cotune_program* program) {
  const auto ranks = static_cast<float>(cotune_group_size(group));
  // Every rank adds 1; the residual is 2 in even columns and 0 in odd ones.
  std::vector<uint16_t> x(kRows * kColumns, ToBf16(1));
  std::vector<uint16_t> residual(x.size());
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = ToBf16(i % 2 == 0 ? 2.0f : 0.0f);
  std::vector<uint16_t> gamma(kColumns, ToBf16(0.5f));
  std::vector<uint16_t> y(x.size());
  const int64_t many[] = {kRows, kColumns};
  const int64_t one[] = {1, kColumns};
  const auto tensor = [](std::vector<uint16_t>& data, const int64_t* sizes) {
    return cotune_tensor{sizeof(cotune_tensor), COTUNE_BF16, data.data(), 2, 0, sizes};
  };
  const cotune_tensor inputs[] = {tensor(x, many), tensor(residual, many), tensor(gamma, one)};
  // The second output is the new residual, which overwrites the old one.
  const cotune_tensor outputs[] = {tensor(y, many), tensor(residual, many)};
  if (cotune_program_run(group, program, inputs, 3, outputs, 2) != COTUNE_SUCCESS) {
    return Fail(group);
  }
  const float rms = std::sqrt(((ranks + 2) * (ranks + 2) + ranks * ranks) / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const float stream = i % 2 == 0 ? ranks + 2 : ranks;
    const float right = stream / rms * 0.5f;
    if (FromBf16(residual[i]) != stream || std::fabs(FromBf16(y[i]) - right) > right / 128) {
      std::fprintf(stderr, "element %zu is %g, not %g\n", i, FromBf16(y[i]), right);
      return 4;
    }
  }
  if (cotune_group_rank(group) != 0) return 0;
  char text[2048];
  if (cotune_explain_program(group, program, kRows, text, sizeof(text), nullptr) !=
      COTUNE_SUCCESS) {
    return Fail(group);
  }
  std::printf("%zu elements are right\n%s", y.size(), text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: residual_norm PROGRAM [DATABASE]\n"), 2;
  std::ifstream file(argv[1]);
  file.peek();  // a folder opens, and cannot be read
  if (!file.is_open() || file.bad()) {
    std::fprintf(stderr, "residual_norm: %s cannot be read: %s\n", argv[1], std::strerror(errno));
    return 3;
  }
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_program* program = nullptr;
  cotune_group* group = nullptr;
  if (cotune_program_parse(source.data(), source.size(), &program, &error) != COTUNE_SUCCESS ||
      cotune_group_create(nullptr, &group, &error) != COTUNE_SUCCESS) {
    std::fprintf(stderr, "%s\n", error.text);
    return cotune_exit_code(error.result);
  }
  const bool loads = argc > 2;
  int exit_code = loads && cotune_load(group, argv[2]) != COTUNE_SUCCESS ? Fail(group) : 0;
  if (exit_code == 0) exit_code = Run(group, program);
  cotune_group_destroy(group);
  cotune_program_free(program);
  return exit_code;
}
