// Folders and files that nobody but this user can have written.
#ifndef COTUNE_PLUGINS_CUDA_COMPILE_PRIVATE_FOLDER_H_
#define COTUNE_PLUGINS_CUDA_COMPILE_PRIVATE_FOLDER_H_

#include <cstdint>
#include <string>

#include "plugins/sdk/descriptor.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

using sdk::Descriptor;

// An open folder of this user's, in which nobody else can put, change or exchange a file. Files are
// reached through it and never through a link. Any thread.
class PrivateFolder {
 public:
  // Makes what is missing, for this user alone. The failure names the folder that is not private,
  // or the one above it that somebody else could exchange. For those above the rule is the one that
  // plugins are loaded by: they belong to this user or root and others may not write to them, but
  // for folders with the sticky bit, and the user's own group.
  static sdk::Result<PrivateFolder> Open(const std::string& path);

  // All of a file; "" when there is none. A file that somebody else could have written, a link,
  // what is no regular file or has more than bytes_max bytes is a failure that says so.
  sdk::Result<std::string> Read(const std::string& name, uint64_t bytes_max) const;
  // The file appears complete or not at all, in place of what has its name. False when it cannot
  // be written.
  bool Write(const std::string& name, const std::string& bytes) const;
  // An empty file to lock; made when it is missing. None when it cannot be used.
  Descriptor OpenLock(const std::string& name) const;

 private:
  explicit PrivateFolder(Descriptor folder) : folder_(std::move(folder)) {}

  Descriptor folder_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_COMPILE_PRIVATE_FOLDER_H_
