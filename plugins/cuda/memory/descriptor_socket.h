// File descriptors sent between the processes of one machine.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_SOCKET_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_SOCKET_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plugins/sdk/descriptor.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

using sdk::Descriptor;

// Random bits that only those know who were told.
using Secret = std::array<uint64_t, 2>;

// The label that goes with a descriptor.
struct DescriptorLabel {
  int64_t sender = 0;
  Secret secret{};  // of the receiver
};

// A new folder of a random name that only this user may enter. It goes, with the socket in it, when
// the object does.
class SocketFolder {
 public:
  // In the first of `bases` where one can be made and a socket's path fits.
  static sdk::Result<SocketFolder> Make(const std::vector<std::string>& bases);
  ~SocketFolder();
  SocketFolder(SocketFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  SocketFolder& operator=(SocketFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit SocketFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// One end: a datagram socket in a folder that only this user may enter, so that nobody else sends
// to it, or fills its queue. (Names in the abstract namespace are shown to everybody in
// /proc/net/unix, and everybody may send to them.) One thread.
class DescriptorSocket {
 public:
  // The longest name() and its zero.
  static constexpr size_t kNameBytesMax = 96;

  // bases: see SocketFolder.
  static sdk::Result<DescriptorSocket> Open(const std::vector<std::string>& bases);
  // $XDG_RUNTIME_DIR where it is set, then /tmp.
  static std::vector<std::string> DefaultBases(
      const std::map<std::string, std::string>& environment);

  // The name of this end, for Send of another process: the folder that the socket is in.
  const std::string& name() const { return folder_.path(); }
  // Receive takes only what is labelled with it.
  const Secret& secret() const { return secret_; }

  // Waits while the receiver's queue is full, COTUNE_DEADLINE_EXCEEDED when it stays so.
  // COTUNE_UNSUPPORTED: there is no such end, as for processes that do not see the same files, or
  // its folder is not this user's alone.
  sdk::Result<void> Send(const std::string& to, const DescriptorLabel& label, int descriptor,
                         int timeout_ms) const;

  struct Received {
    int64_t sender = 0;
    Descriptor descriptor;
  };
  // The next one that has the secret; everything else is dropped, and takes of the time like
  // waiting does. COTUNE_DEADLINE_EXCEEDED when none has come.
  sdk::Result<Received> Receive(int timeout_ms) const;

 private:
  DescriptorSocket(SocketFolder folder, Descriptor socket)
      : folder_(std::move(folder)), socket_(std::move(socket)) {}

  SocketFolder folder_;
  Descriptor socket_;
  Secret secret_{};
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_DESCRIPTOR_SOCKET_H_
