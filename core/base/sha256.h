// SHA-256 of text, for digests that ranks compare.
#ifndef COTUNE_CORE_BASE_SHA256_H_
#define COTUNE_CORE_BASE_SHA256_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cotune {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);
// The first 8 bytes, big-endian.
uint64_t Sha256Prefix(std::string_view bytes);

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_SHA256_H_
