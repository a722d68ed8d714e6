#include "plugins/sdk/testing/part_data.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>

namespace cotune::sdk {

PartArray RandomArray(const Value& type, std::mt19937_64& random, bool with_special) {
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
    if (!IsFloat(type.dtype) && bits % 7 == 0) number = std::ldexp(number, 40);
    SetPartElement(array, i, number);
  }
  return array;
}

std::vector<PartArray> RandomInputs(const Program& program, std::mt19937_64& random,
                                    bool with_special) {
  std::vector<PartArray> inputs;
  for (int i = 0; i < program.input_count; ++i) {
    inputs.push_back(RandomArray(program.values[i], random, with_special));
  }
  return inputs;
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

}  // namespace cotune::sdk
