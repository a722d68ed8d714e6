// Names of the messages of wire.proto, for headers: the classes that protoc writes take over a
// second to compile, so only sources that look into a message include "sync/wire/wire.pb.h".
#ifndef COTUNE_SYNC_WIRE_WIRE_FORWARD_H_
#define COTUNE_SYNC_WIRE_WIRE_FORWARD_H_

#include <memory>

namespace cotune::wire {

class Acknowledge;
class Arrive;
class Failure;
class Frame;
class GiveUp;
class Hello;
class StoreRequest;
class Vote;
enum CallKind : int;
enum Ruling : int;

}  // namespace cotune::wire

namespace cotune::sync {

using FramePtr = std::shared_ptr<const wire::Frame>;

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_WIRE_FORWARD_H_
