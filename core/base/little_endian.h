// Fixed-width integers in files, little-endian on every machine.
#ifndef COTUNE_CORE_BASE_LITTLE_ENDIAN_H_
#define COTUNE_CORE_BASE_LITTLE_ENDIAN_H_

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace cotune {

template <std::unsigned_integral T>
void AppendLittleEndian(T value, std::string& bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
}

// `bytes` holds at least sizeof(T).
template <std::unsigned_integral T>
T ReadLittleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  }
  return value;
}

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_LITTLE_ENDIAN_H_
