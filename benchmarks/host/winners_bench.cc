// Times the winners of tuned databases beside the default choices, in turns in one process, so that
// two ways to tune can be compared by what calls gain from them.
//
//   cotune run --ranks 2 -- ./winners_bench PROGRAM ROWS,... BLOCKS DATABASE...
//
// A block of a contender is one call that is not timed and then some that are; blocks of all
// contenders take turns. Rank 0 prints a line of JSON for each number of rows: microseconds a call
// of each contender, the default first (medians over blocks), and for each database the median of
// its time by the default's of the same turn with the 99 % interval.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"

namespace {

constexpr int64_t kBlockBytes = 4 << 20;  // about so many bytes pass through the calls of a block
constexpr int64_t kBlockCallsMax = 50;

size_t ElementBytes(cotune_dtype dtype) {
  switch (dtype) {
    case COTUNE_F64:
    case COTUNE_I64:
      return 8;
    case COTUNE_F16:
    case COTUNE_BF16:
      return 2;
    case COTUNE_I8:
    case COTUNE_U8:
    case COTUNE_F8_E4M3:
    case COTUNE_F8_E5M2:
      return 1;
    default:
      return 4;
  }
}

// The operands of one call. Values are zero: no choice takes another way for them.
struct Operands {
  std::vector<std::vector<uint64_t>> memory;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<cotune_tensor> tensors;

  void Add(cotune_dtype dtype, int64_t rows, int64_t columns) {
    const auto elements = static_cast<size_t>(rows * columns);
    memory.emplace_back(elements * ElementBytes(dtype) / sizeof(uint64_t) + 1);
    sizes.push_back({rows, columns});
    tensors.push_back({sizeof(cotune_tensor), dtype, memory.back().data(), 2, 0, nullptr});
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].sizes = sizes[i].data();
  }
  int64_t bytes() const {
    size_t words = 0;
    for (const auto& each : memory) words += each.size();
    return static_cast<int64_t>(words * sizeof(uint64_t));
  }
};

// One line of an input: "%x = input f32 [R, 1024]".
bool AddInput(const std::string& line, int64_t rows, int64_t ranks, Operands& inputs) {
  static const std::vector<std::pair<std::string, cotune_dtype>> kTypes = {
      {"f32", COTUNE_F32}, {"bf16", COTUNE_BF16}, {"f16", COTUNE_F16}, {"i32", COTUNE_I32}};
  const size_t at = line.find("= input ");
  if (at == std::string::npos) return true;
  std::istringstream words(line.substr(at + 8));
  std::string dtype;
  char bracket = 0;
  std::string row_text;
  int64_t columns = 0;
  words >> dtype >> bracket;
  std::getline(words, row_text, ',');
  words >> columns;
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const auto& each) { return each.first == dtype; });
  const bool is_fixed = row_text.find('R') == std::string::npos;
  if (row_text.find("/n") != std::string::npos) rows /= ranks;
  if (type == kTypes.end() || columns <= 0) return false;
  inputs.Add(type->second, is_fixed ? std::atoll(row_text.c_str()) : rows, columns);
  return true;
}

struct Interval {
  double low, median, high;
};

// The 99 % interval of the median, by its normal approximation of the ranks.
Interval MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto reach = static_cast<int64_t>(1.29 * __builtin_sqrt(n) + 1);
  const auto middle = static_cast<int64_t>(values.size() / 2);
  const auto last = static_cast<int64_t>(values.size()) - 1;
  const auto at = [&](int64_t i) {
    return values[static_cast<size_t>(std::clamp<int64_t>(i, 0, last))];
  };
  return {at(middle - reach), at(middle), at(middle + reach)};
}

struct Contender {
  cotune_group* group;
  std::vector<double> times_us;
};

int Fail(const cotune_group* group) {
  std::fprintf(stderr, "winners_bench: %s\n", cotune_last_error(group));
  return cotune_exit_code(cotune_last_result(group));
}

bool RunBlock(Contender& contender, const cotune_program* program, const Operands& inputs,
              const Operands& outputs, int64_t calls) {
  const auto call = [&] {
    return cotune_program_run(contender.group, program, inputs.tensors.data(),
                              inputs.tensors.size(), outputs.tensors.data(),
                              outputs.tensors.size()) == COTUNE_SUCCESS;
  };
  if (!call()) return false;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) {
    if (!call()) return false;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  contender.times_us.push_back(took.count() / static_cast<double>(calls));
  return true;
}

void Print(const std::vector<Contender>& contenders, int64_t rows, int64_t bytes) {
  std::printf("{\"rows\": %lld, \"bytes\": %lld, \"us\": [", static_cast<long long>(rows),
              static_cast<long long>(bytes));
  for (size_t i = 0; i < contenders.size(); ++i) {
    std::printf("%s%.3f", i == 0 ? "" : ", ", MedianOf(contenders[i].times_us).median);
  }
  std::printf("], \"by_default\": [");
  for (size_t i = 1; i < contenders.size(); ++i) {
    std::vector<double> ratios;
    for (size_t turn = 0; turn < contenders[i].times_us.size(); ++turn) {
      ratios.push_back(contenders[i].times_us[turn] / contenders[0].times_us[turn]);
    }
    const Interval ratio = MedianOf(ratios);
    std::printf("%s[%.4f, %.4f, %.4f]", i == 1 ? "" : ", ", ratio.low, ratio.median, ratio.high);
  }
  std::printf("]}\n");
}

int Measure(std::vector<Contender>& contenders, const cotune_program* program,
            const std::string& text, int64_t rows, int64_t blocks) {
  Operands inputs;
  Operands outputs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (AddInput(line, rows, cotune_group_size(contenders[0].group), inputs)) continue;
    std::fprintf(stderr, "winners_bench: cannot read the input in \"%s\"\n", line.c_str());
    return 2;
  }
  std::vector<cotune_program_value> values(cotune_program_output_count(program));
  for (auto& value : values) value.struct_size = sizeof(value);
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_program_infer(program, cotune_group_size(contenders[0].group), inputs.tensors.data(),
                           inputs.tensors.size(), values.data(), values.size(),
                           &error) != COTUNE_SUCCESS) {
    std::fprintf(stderr, "winners_bench: %s\n", error.text);
    return cotune_exit_code(error.result);
  }
  for (const auto& value : values) {
    outputs.Add(value.dtype, static_cast<int64_t>(value.rows), static_cast<int64_t>(value.columns));
    if (value.into >= 0) {
      outputs.tensors.back().data = inputs.tensors[static_cast<size_t>(value.into)].data;
    }
  }
  const int64_t bytes = inputs.bytes() + outputs.bytes();
  const int64_t calls = std::clamp<int64_t>(kBlockBytes / bytes, 2, kBlockCallsMax);
  for (Contender& contender : contenders) contender.times_us.clear();
  for (int64_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      Contender& next = contenders[(i + static_cast<size_t>(block)) % contenders.size()];
      if (!RunBlock(next, program, inputs, outputs, calls)) return Fail(next.group);
    }
  }
  if (cotune_group_rank(contenders[0].group) == 0) Print(contenders, rows, bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: winners_bench PROGRAM ROWS,... BLOCKS DATABASE...\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_program* program = nullptr;
  cotune_group_options options{};
  options.struct_size = sizeof(options);
  options.ignores_database = 1;
  cotune_group* world = nullptr;
  if (cotune_program_parse(text.data(), text.size(), &program, &error) != COTUNE_SUCCESS ||
      cotune_group_create(&options, &world, &error) != COTUNE_SUCCESS) {
    std::fprintf(stderr, "winners_bench: %s\n", error.text);
    return cotune_exit_code(error.result);
  }
  std::vector<Contender> contenders = {{world, {}}};
  int exit_code = 0;
  for (int i = 4; i < argc && exit_code == 0; ++i) {
    const std::string name = "of database " + std::to_string(i);
    std::vector<int32_t> ranks;
    for (int32_t rank = 0; rank < cotune_group_size(world); ++rank) ranks.push_back(rank);
    cotune_group* group = nullptr;
    if (cotune_group_split(world, name.c_str(), ranks.data(), ranks.size(), &group, &error) !=
        COTUNE_SUCCESS) {
      std::fprintf(stderr, "winners_bench: %s\n", error.text);
      exit_code = cotune_exit_code(error.result);
      break;
    }
    contenders.push_back({group, {}});
    if (cotune_load(group, argv[i]) != COTUNE_SUCCESS) exit_code = Fail(group);
  }
  std::istringstream row_texts(argv[2]);
  for (std::string rows; exit_code == 0 && std::getline(row_texts, rows, ',');) {
    exit_code = Measure(contenders, program, text, std::atoll(rows.c_str()), std::atoll(argv[3]));
  }
  for (auto each = contenders.rbegin(); each != contenders.rend(); ++each) {
    cotune_group_destroy(each->group);
  }
  cotune_program_free(program);
  return exit_code;
}
