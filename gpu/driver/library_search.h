// Finds libraries in places that no linker path names: Python environments and NVIDIA's toolkits.
#ifndef COTUNE_GPU_DRIVER_LIBRARY_SEARCH_H_
#define COTUNE_GPU_DRIVER_LIBRARY_SEARCH_H_

#include <map>
#include <string>
#include <vector>

namespace cotune::gpu {

struct LibraryQuery {
  std::string named;                 // by the user, a file; "": nobody named one
  std::vector<std::string> sonames;  // best first: "libnvrtc.so.13", "libnvrtc.so.12"
  // Folders of Python packages beside those of NVIDIA's, from site-packages: "libucx/lib".
  std::vector<std::string> python_folders = {};
};

// Paths to try with dlopen, best first: the one that the user named alone, or else those in the
// Python environment (VIRTUAL_ENV, CONDA_PREFIX, then that of the python3 on PATH, which is not
// run), in the toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), and at last the bare sonames for
// the system's own search. Files are looked at, nothing is opened.
std::vector<std::string> LibraryCandidates(const LibraryQuery& query,
                                           const std::map<std::string, std::string>& environment);

// Environment of this process, for the above.
std::map<std::string, std::string> OwnEnvironment();

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_LIBRARY_SEARCH_H_
