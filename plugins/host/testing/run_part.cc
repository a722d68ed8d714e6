#include "plugins/host/testing/run_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "plugins/host/element_program.h"
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
    (*prepared)->Begin(in_addresses.data());
    for (uint64_t row = 0; row < all; row += rows_at_once) {
      (*prepared)->RunRows(in_addresses.data(), out_addresses.data(), row,
                           std::min(rows_at_once, all - row));
    }
    (*prepared)->End(in_addresses.data(), out_addresses.data());
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

}  // namespace cotune::host
