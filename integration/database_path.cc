#include "integration/database_path.h"

#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstring>

#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr size_t kReadableLettersMax = 40;

// Lower-case letters and digits, everything else as single dashes between them.
std::string Slug(const std::string& text) {
  std::string slug;
  for (const unsigned char letter : text) {
    if (slug.size() == kReadableLettersMax) break;
    if (std::isalnum(letter) != 0) {
      slug += static_cast<char>(std::tolower(letter));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

std::string Variable(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

std::string MachineFileName(const Fingerprint& fingerprint) {
  std::string fields;
  for (const auto& [name, value] : fingerprint.machine) {
    fields += fmt::format("{}={}\n", name, value);
  }
  const auto model = fingerprint.machine.find("cpu_model");
  const std::string slug = model == fingerprint.machine.end() ? "" : Slug(model->second);
  return fmt::format("{}-{}", slug.empty() ? "machine" : slug, Sha256Hex(fields).substr(0, 8));
}

Result<std::string> DatabasePath(const std::string& asked, const Environment& environment,
                                 const Fingerprint& fingerprint) {
  if (!asked.empty()) return asked;
  // A relative folder would be another one in each folder that cotune is started in.
  std::string folder = Variable(environment, "XDG_CACHE_HOME");
  const std::string home = Variable(environment, "HOME");
  if (!folder.starts_with('/')) folder = home.starts_with('/') ? home + "/.cache" : "";
  if (folder.empty()) {
    return Fail(ErrorCode::kEnvironment, "there is no place for the tuned database",
                home.empty() ? "" : "HOME=" + home,
                home.empty() ? "neither XDG_CACHE_HOME nor HOME is set to an absolute path"
                             : "it is not an absolute path, and XDG_CACHE_HOME is not set to one",
                "name a file with --db or COTUNE_DATABASE");
  }
  return fmt::format("{}/cotune/{}.tdb", folder, MachineFileName(fingerprint));
}

Status MakeFolderOf(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return Fail(ErrorCode::kEnvironment, "cannot make the folder of the tuned database", folder,
                  std::strerror(errno), "name a file with --db in a folder that you may write to");
    }
  }
  return {};
}

}  // namespace cotune
