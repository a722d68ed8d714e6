#include "gpu/driver/testing/graph_driver.h"

#include <utility>
#include <vector>

#include "gpu/driver/cuda_driver.h"

using namespace cotune::gpu;  // NOLINT: the functions below are the driver's names

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr CuResult kSomeFailure = 999;

struct UserObject {
  void* data;
  CuHostFunction destroy;
  unsigned int count;
};

// A graph, or one that was instantiated.
struct Graph {
  std::vector<UserObject*> held;
};

GraphDriverState& State() { return *graph_driver_state(); }

UserObject* Of(CuUserObject object) { return reinterpret_cast<UserObject*>(object); }

void Release(UserObject* object, unsigned int count) {
  object->count -= count;
  if (object->count > 0) return;
  object->destroy(object->data);
  delete object;
  --State().user_objects;
}

void Destroy(Graph* graph) {
  for (UserObject* object : graph->held) Release(object, 1);
  delete graph;
}

// The lowest address that is not taken.
CuDevicePointer Place(std::map<CuDevicePointer, size_t>& taken, CuDevicePointer first,
                      size_t bytes) {
  CuDevicePointer place = first;
  for (const auto& [begin, size] : taken) {
    if (begin >= place + bytes) break;
    place = begin + size;
  }
  taken.emplace(place, bytes);
  return place;
}

}  // namespace

EXPORT GraphDriverState* graph_driver_state() {
  static auto* state = new GraphDriverState;
  return state;
}

EXPORT CuResult cuDeviceGetCount(int* count) {
  *count = 1;
  return kCuSuccess;
}

EXPORT CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute, CuDevice) {
  *value = 1;
  return kCuSuccess;
}

EXPORT CuResult cuMemGetAllocationGranularity(size_t* bytes, const CuMemAllocationProperties*,
                                              CuMemGranularity) {
  *bytes = 4096;
  return kCuSuccess;
}

EXPORT CuResult cuMemAddressReserve(CuDevicePointer* pointer, size_t bytes, size_t, CuDevicePointer,
                                    unsigned long long) {
  *pointer = Place(State().reserved, CuDevicePointer{1} << 40, bytes);
  return kCuSuccess;
}

EXPORT CuResult cuMemAddressFree(CuDevicePointer pointer, size_t) {
  State().reserved.erase(pointer);
  return kCuSuccess;
}

EXPORT CuResult cuMemMap(CuDevicePointer pointer, size_t bytes, size_t, CuMemGenericHandle,
                         unsigned long long) {
  State().mapped[pointer] = bytes;
  return kCuSuccess;
}

EXPORT CuResult cuMemUnmap(CuDevicePointer pointer, size_t) {
  State().mapped.erase(pointer);
  return kCuSuccess;
}

EXPORT CuResult cuMemAlloc_v2(CuDevicePointer* pointer, size_t bytes) {
  *pointer = Place(State().allocated, CuDevicePointer{2} << 40, (bytes + 255) / 256 * 256);
  return kCuSuccess;
}

EXPORT CuResult cuMemFree_v2(CuDevicePointer pointer) {
  State().allocated.erase(pointer);
  return kCuSuccess;
}

EXPORT CuResult cuStreamBeginCapture_v2(CuStream, CuStreamCaptureMode) {
  State().capture = reinterpret_cast<CuGraph>(new Graph);
  ++State().captures;
  return kCuSuccess;
}

EXPORT CuResult cuStreamEndCapture(CuStream, CuGraph* graph) {
  *graph = std::exchange(State().capture, nullptr);
  return kCuSuccess;
}

EXPORT CuResult cuStreamIsCapturing(CuStream, CuStreamCaptureStatus* status) {
  *status = State().capture == nullptr ? kCuCaptureNone : kCuCaptureActive;
  return kCuSuccess;
}

EXPORT CuResult cuStreamGetCaptureInfo_v2(CuStream, CuStreamCaptureStatus* status,
                                          unsigned long long* id, CuGraph* graph, const void**,
                                          size_t*) {
  *status = State().capture == nullptr ? kCuCaptureNone : kCuCaptureActive;
  if (State().capture == nullptr) return kCuSuccess;
  *id = State().captures;
  if (graph != nullptr) *graph = State().capture;
  return kCuSuccess;
}

EXPORT CuResult cuUserObjectCreate(CuUserObject* object, void* data, CuHostFunction destroy,
                                   unsigned int count, unsigned int) {
  if (State().refuses_user_objects) return kSomeFailure;
  *object = reinterpret_cast<CuUserObject>(new UserObject{data, destroy, count});
  ++State().user_objects;
  return kCuSuccess;
}

EXPORT CuResult cuUserObjectRelease(CuUserObject object, unsigned int count) {
  Release(Of(object), count);
  return kCuSuccess;
}

// The reference of the caller moves to the graph.
EXPORT CuResult cuGraphRetainUserObject(CuGraph graph, CuUserObject object, unsigned int,
                                        unsigned int flags) {
  if (flags != kCuGraphUserObjectMove) return kSomeFailure;
  reinterpret_cast<Graph*>(graph)->held.push_back(Of(object));
  return kCuSuccess;
}

EXPORT CuResult cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph, unsigned long long) {
  auto* made = new Graph(*reinterpret_cast<Graph*>(graph));
  for (UserObject* object : made->held) ++object->count;
  *exec = reinterpret_cast<CuGraphExec>(made);
  return kCuSuccess;
}

EXPORT CuResult cuGraphDestroy(CuGraph graph) {
  Destroy(reinterpret_cast<Graph*>(graph));
  return kCuSuccess;
}

EXPORT CuResult cuGraphExecDestroy(CuGraphExec exec) {
  Destroy(reinterpret_cast<Graph*>(exec));
  return kCuSuccess;
}
