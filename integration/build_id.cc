#include "integration/build_id.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>

#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The description of the first build id among ELF notes, in hex; "" when there is none.
std::string BuildIdAmong(std::span<const std::byte> notes) {
  constexpr std::string_view kOwner("GNU\0", 4);  // with its NUL
  // Both parts of a note are padded to 4 bytes.
  const auto padded = [](uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header{};
    std::memcpy(&header, notes.data(), sizeof(header));
    const uint64_t name_bytes = padded(header.n_namesz);
    const uint64_t all_bytes = sizeof(header) + name_bytes + padded(header.n_descsz);
    if (all_bytes > notes.size()) return "";
    const auto* name = reinterpret_cast<const char*>(notes.data()) + sizeof(header);
    if (header.n_type == NT_GNU_BUILD_ID && std::string_view(name, header.n_namesz) == kOwner) {
      std::string hex;
      for (const std::byte value : notes.subspan(sizeof(header) + name_bytes, header.n_descsz)) {
        hex += fmt::format("{:02x}", static_cast<unsigned>(value));
      }
      return hex;
    }
    notes = notes.subspan(all_bytes);
  }
  return "";
}

struct Search {
  uintptr_t address = 0;
  std::string build_id;
};

// 1, which ends the walk, for the library that holds the address.
int Visit(dl_phdr_info* library, size_t /*bytes*/, void* context) {
  auto& search = *static_cast<Search*>(context);
  const std::span<const ElfW(Phdr)> headers(library->dlpi_phdr, library->dlpi_phnum);
  const bool holds = std::any_of(headers.begin(), headers.end(), [&](const ElfW(Phdr) & header) {
    const uintptr_t begin = library->dlpi_addr + header.p_vaddr;
    return header.p_type == PT_LOAD && search.address >= begin &&
           search.address - begin < header.p_memsz;
  });
  if (!holds) return 0;
  for (const ElfW(Phdr) & header : headers) {
    if (header.p_type != PT_NOTE || !search.build_id.empty()) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(library->dlpi_addr + header.p_vaddr);
    search.build_id = BuildIdAmong({notes, header.p_memsz});
  }
  return 1;
}

}  // namespace

std::string BuildIdOf(const void* address, const std::string& path) {
  Search search{reinterpret_cast<uintptr_t>(address), ""};
  dl_iterate_phdr(Visit, &search);
  if (!search.build_id.empty()) return search.build_id;
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return file.bad() ? "" : Sha256Hex(bytes);
}

}  // namespace cotune
