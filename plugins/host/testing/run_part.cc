#include "plugins/host/testing/run_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "plugins/host/element_program.h"
#include "plugins/host/testing/part_builder.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

using sdk::ValueDtype;

void OnEveryTarget(const std::function<void(const std::string&)>& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

PartArray RandomArray(const sdk::Value& type, std::mt19937_64& random, bool with_special) {
  PartArray array{type.dtype,
                  std::vector<std::byte>(type.rows * type.columns * PartBytes(type.dtype))};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), 1e-40, -3e-39,
                            1.0, -1.0, 0.5,       3.4e38,     -3.4e38,      65504, 448,
                            464, 465,  57344,     61440,      -129,         300};
  for (size_t i = 0; i < type.rows * type.columns; ++i) {
    const uint64_t bits = random();
    double number = std::ldexp(static_cast<double>(static_cast<int64_t>(bits % 20001) - 10000),
                               static_cast<int>(bits >> 40) % 24 - 20);
    if (with_special && bits % 31 == 0) number = special[(bits >> 20) % std::size(special)];
    if (!sdk::IsFloat(type.dtype) && bits % 7 == 0) number = std::ldexp(number, 40);
    SetPartElement(array, i, number);
  }
  return array;
}

std::vector<PartArray> RandomInputs(const sdk::Program& program, std::mt19937_64& random,
                                    bool with_special) {
  std::vector<PartArray> inputs;
  for (int i = 0; i < program.input_count; ++i) {
    inputs.push_back(RandomArray(program.values[i], random, with_special));
  }
  return inputs;
}

std::vector<PartArray> RunPart(const sdk::Program& program, const std::vector<PartArray>& inputs,
                               size_t shift, uint64_t rows_at_once) {
  auto prepared = ElementProgram::Prepare(program);
  if (!prepared) {
    ADD_FAILURE() << prepared.error().message;
    return {};
  }
  constexpr std::byte kPoison{0x5a};
  constexpr size_t kGuard = 256;
  const auto operand = [&](size_t bytes, ValueDtype dtype) {
    return std::vector<std::byte>(shift * PartBytes(dtype) + bytes + kGuard, kPoison);
  };
  std::vector<std::vector<std::byte>> in;
  std::vector<std::vector<std::byte>> out;
  std::vector<const void*> in_addresses;
  std::vector<void*> out_addresses;
  for (const PartArray& each : inputs) {
    in.push_back(operand(each.bytes.size(), each.dtype));
    std::copy(each.bytes.begin(), each.bytes.end(),
              in.back().begin() + shift * PartBytes(each.dtype));
    in_addresses.push_back(in.back().data() + shift * PartBytes(each.dtype));
  }
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const sdk::Value& type = program.values[program.outputs[o]];
    const int into = program.output_into[o];
    out.push_back(operand(type.rows * type.columns * PartBytes(type.dtype), type.dtype));
    out_addresses.push_back(into >= 0 ? in[into].data() + shift * PartBytes(type.dtype)
                                      : out.back().data() + shift * PartBytes(type.dtype));
  }
  if (rows_at_once == 0) {
    (*prepared)->Run(in_addresses.data(), out_addresses.data());
  } else {
    uint64_t all = 0;
    for (const sdk::Value& each : program.values) {
      if (each.rows_kind == COTUNE_ROWS_ALL) all = each.rows;
    }
    uint64_t row = 0;
    do {
      (*prepared)->RunRows(in_addresses.data(), out_addresses.data(), row,
                           std::min(rows_at_once, all - row));
      row += rows_at_once;
    } while (row < all);
  }
  std::vector<PartArray> outputs;
  for (size_t o = 0; o < program.outputs.size(); ++o) {
    const sdk::Value& type = program.values[program.outputs[o]];
    const int into = program.output_into[o];
    const auto& from = into >= 0 ? in[into] : out[o];
    const size_t begin = shift * PartBytes(type.dtype);
    outputs.push_back({type.dtype, {from.begin() + begin, from.end() - kGuard}});
    const bool is_whole =
        std::all_of(from.begin(), from.begin() + begin, [&](auto b) { return b == kPoison; }) &&
        std::all_of(from.end() - kGuard, from.end(), [&](auto b) { return b == kPoison; });
    EXPECT_TRUE(is_whole) << "output " << o << ": wrote beyond its end";
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& into = program.output_into;
    if (std::find(into.begin(), into.end(), static_cast<int>(i)) != into.end()) continue;
    EXPECT_TRUE(std::equal(inputs[i].bytes.begin(), inputs[i].bytes.end(),
                           in[i].begin() + shift * PartBytes(inputs[i].dtype)))
        << "input " << i << " was changed";
  }
  return outputs;
}

std::string Difference(const std::vector<PartArray>& seen, const std::vector<PartArray>& expected) {
  if (seen.size() != expected.size()) return "the number of outputs differs";
  for (size_t o = 0; o < seen.size(); ++o) {
    const size_t bytes = PartBytes(seen[o].dtype);
    if (seen[o].bytes.size() != expected[o].bytes.size()) return "the size of an output differs";
    for (size_t i = 0; i < seen[o].bytes.size() / bytes; ++i) {
      if (std::memcmp(&seen[o].bytes[i * bytes], &expected[o].bytes[i * bytes], bytes) == 0) {
        continue;
      }
      const double a = PartElement(seen[o], i);
      const double b = PartElement(expected[o], i);
      if (std::isnan(a) && std::isnan(b)) continue;
      char text[160];
      std::snprintf(text, sizeof(text), "output %zu element %zu is %.17g, not %.17g", o, i, a, b);
      return text;
    }
  }
  return "";
}

}  // namespace cotune::host
