#include "gpu/driver/library_search.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace cotune::gpu {
namespace {

namespace fs = std::filesystem;

std::string ValueOf(const std::map<std::string, std::string>& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// The folder that holds bin/python3 of the first python3 on PATH. A virtual environment's python3
// is a link: the environment is where the link lies, not where it points to.
std::string PythonPrefix(std::string_view path) {
  std::error_code error;
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    const fs::path folder(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    if (folder.empty() || !fs::exists(folder / "python3", error)) continue;
    if (fs::exists(folder.parent_path() / "pyvenv.cfg", error)) return folder.parent_path();
    const fs::path real = fs::canonical(folder / "python3", error);
    return error ? "" : real.parent_path().parent_path().string();
  }
  return "";
}

std::vector<fs::path> Entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) entries.push_back(entry.path());
  // Newest version first, and the same order everywhere.
  std::sort(entries.begin(), entries.end(), std::greater<>());
  return entries;
}

// PREFIX/lib/python3.*/{site,dist}-packages/nvidia/*/lib, and the other folders there.
std::vector<fs::path> PythonLibraryFolders(const fs::path& prefix,
                                           const std::vector<std::string>& others) {
  std::vector<fs::path> folders;
  for (const fs::path& python : Entries(prefix / "lib")) {
    if (!python.filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& package : Entries(python / packages / "nvidia")) {
        folders.push_back(package / "lib");
      }
      for (const std::string& other : others) folders.push_back(python / packages / other);
    }
  }
  return folders;
}

}  // namespace

std::vector<std::string> LibraryCandidates(const LibraryQuery& query,
                                           const std::map<std::string, std::string>& environment) {
  if (!query.named.empty()) return {query.named};
  std::vector<fs::path> folders;
  for (const std::string& prefix :
       {ValueOf(environment, "VIRTUAL_ENV"), ValueOf(environment, "CONDA_PREFIX"),
        PythonPrefix(ValueOf(environment, "PATH"))}) {
    if (prefix.empty()) continue;
    const std::vector<fs::path> found = PythonLibraryFolders(prefix, query.python_folders);
    folders.insert(folders.end(), found.begin(), found.end());
  }
  for (const std::string& toolkit :
       {ValueOf(environment, "CUDA_HOME"), ValueOf(environment, "CUDA_PATH"),
        std::string("/usr/local/cuda")}) {
    if (!toolkit.empty()) folders.push_back(fs::path(toolkit) / "lib64");
  }
  std::vector<std::string> candidates;
  std::error_code error;
  for (const fs::path& folder : folders) {
    for (const std::string& soname : query.sonames) {
      const std::string path = folder / soname;
      const bool is_new = std::find(candidates.begin(), candidates.end(), path) == candidates.end();
      if (is_new && fs::exists(path, error)) candidates.push_back(path);
    }
  }
  candidates.insert(candidates.end(), query.sonames.begin(), query.sonames.end());
  return candidates;
}

std::map<std::string, std::string> OwnEnvironment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace cotune::gpu
