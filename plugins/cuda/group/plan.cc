#include "plugins/cuda/group/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/memory/kernel_launch.h"

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

Plan::Plan(Group& group, const sdk::Problem& problem, Choice choice, gpu::CuFunction function)
    : group_(group),
      problem_(problem),
      choice_(std::move(choice)),
      call_(RecordOf(problem_, choice_.name)),
      function_(function) {
  const cuda::Launch launch =
      choice_.family == nullptr ? cuda::Launch::kKernel : choice_.family->launch;
  if (launch == cuda::Launch::kCopies) copies_ = CopiesOf(problem_, group_.rank());
  if (launch != cuda::Launch::kSegments) return;
  for (size_t segment = 0; segment < segments_.size(); ++segment) {
    segments_[segment] = SegmentCopiesOf(problem_, group_.rank(), static_cast<int>(segment));
  }
}

Result<void> Plan::Launch(const cotune_launch_t& launch) {
  auto fits = sdk::CheckBuffers(problem_, group_.rank(), launch.send, launch.recv);
  if (!fits || problem_.count == 0) return fits;
  const gpu::CurrentContext current(group_.gpu().driver(), group_.gpu().context());
  if (choice_.is_copy) return LaunchCopy(launch);
  group_.NoteCall(static_cast<gpu::CuStream>(launch.stream.handle));
  COTUNE_TRY(auto arguments, ArgumentsOf(launch));
  switch (choice_.family->launch) {
    case cuda::Launch::kKernel:
      return LaunchKernel(arguments, launch.stream.handle, choice_.blocks);
    case cuda::Launch::kCopies:
      return LaunchCopies(launch, arguments);
    case cuda::Launch::kSegments:
      return LaunchSegments(launch, arguments);
  }
  return Fail(COTUNE_INTERNAL, fmt::format("'{}' has no way to be launched", choice_.name));
}

Result<void> Plan::LaunchCopy(const cotune_launch_t& launch) {
  if (launch.send == launch.recv) return {};
  const Gpu& gpu = group_.gpu();
  return gpu.Check(
      gpu.driver()->CopyOnDeviceAsync(reinterpret_cast<gpu::CuDevicePointer>(launch.recv),
                                      reinterpret_cast<gpu::CuDevicePointer>(launch.send),
                                      sdk::ProblemBytes(problem_),
                                      static_cast<gpu::CuStream>(launch.stream.handle)),
      "cuMemcpyDtoDAsync");
}

Result<void> Plan::FindPeerBuffers(const cotune_launch_t& launch,
                                   KernelArguments& arguments) const {
  using sdk::Collective;
  const Collective collective = problem_.collective;
  const auto ranks = static_cast<uint64_t>(problem_.world_size);
  const uint64_t bytes = problem_.count * sdk::ElementBytes(problem_.type);
  const auto find = [&](const void* data, uint64_t size, unsigned char** found) -> Result<void> {
    COTUNE_TRY(const auto addresses, group_.registered().Find(data, size));
    std::copy(addresses.begin(), addresses.end(), found);
    return {};
  };
  const bool has_blocks =
      collective == Collective::kAllGather || collective == Collective::kAllToAll;
  if (ReachesPeerSends(*choice_.family, problem_)) {
    const bool is_cut =
        collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
    auto done = find(launch.send, is_cut ? ranks * bytes : bytes, arguments.peer_send);
    if (!done) return done;
  }
  if (!ReachesPeerReceives(*choice_.family)) return {};
  return find(launch.recv, has_blocks ? ranks * bytes : bytes, arguments.peer_recv);
}

Result<void> Plan::QueueCopy(const cotune_launch_t& launch, const KernelArguments& arguments,
                             const BufferCopy& copy, gpu::CuStream stream) {
  const unsigned char* from =
      (copy.is_from_recv ? arguments.peer_recv : arguments.peer_send)[copy.from_rank];
  const Gpu& gpu = group_.gpu();
  return gpu.Check(gpu.driver()->CopyOnDeviceAsync(
                       reinterpret_cast<gpu::CuDevicePointer>(launch.recv) + copy.to_offset_bytes,
                       reinterpret_cast<gpu::CuDevicePointer>(from) + copy.from_offset_bytes,
                       copy.bytes, stream),
                   "cuMemcpyDtoDAsync");
}

// After a barrier that gave up, copies run all the same: nothing on a stream skips them. They only
// write this rank's receive buffer, and the next barrier fails.
Result<void> Plan::QueueCopies(const cotune_launch_t& launch, const KernelArguments& arguments,
                               const std::vector<BufferCopy>& copies, gpu::CuStream stream) {
  for (const BufferCopy& copy : copies) {
    if (auto done = QueueCopy(launch, arguments, copy, stream); !done) return done;
  }
  return {};
}

// A segment is added up on a stream beside the copies of the next one, or, behind the last scatter,
// beside the first gather.
Result<void> Plan::QueueSegment(const cotune_launch_t& launch, const KernelArguments& arguments,
                                size_t segment) {
  const auto stream = static_cast<gpu::CuStream>(launch.stream.handle);
  COTUNE_TRY(const auto side, group_.side_stream(0).Fork(stream));
  KernelArguments adding = arguments;
  adding.segment = static_cast<int>(segment);
  auto done = LaunchKernel(adding, side, choice_.blocks);
  const bool is_last = segment + 1 == segments_.size();
  if (done) {
    done = QueueCopies(launch, arguments,
                       is_last ? segments_[0].gather : segments_[segment + 1].scatter, stream);
  }
  // Also after a failure: a capture with a stream that was not joined cannot end.
  const auto joined = group_.side_stream(0).Join(stream);
  return done ? joined : done;
}

Result<void> Plan::LaunchSegments(const cotune_launch_t& launch, KernelArguments arguments) {
  arguments.segment = -1;
  const auto stream = static_cast<gpu::CuStream>(launch.stream.handle);
  auto done = LaunchKernel(arguments, stream, 1);
  if (done) done = QueueCopies(launch, arguments, segments_[0].scatter, stream);
  for (size_t segment = 0; done && segment < segments_.size(); ++segment) {
    done = QueueSegment(launch, arguments, segment);
  }
  for (size_t segment = 1; done && segment < segments_.size(); ++segment) {
    done = QueueCopies(launch, arguments, segments_[segment].gather, stream);
  }
  if (done) done = LaunchKernel(arguments, stream, 1);
  return done;
}

Result<void> Plan::CopyHere(const cotune_launch_t& launch, const KernelArguments& arguments,
                            const BufferCopy& copy, void* stream) {
  KernelArguments own = arguments;
  own.send = static_cast<const unsigned char*>(launch.send) + copy.from_offset_bytes;
  own.recv = static_cast<unsigned char*>(launch.recv) + copy.to_offset_bytes;
  own.count = copy.bytes / sdk::ElementBytes(problem_.type);
  own.segment = 0;
  // The caller gave one buffer twice in a call that is not in place: there is nothing to copy.
  if (own.send == own.recv) return {};
  return LaunchKernel(own, stream, choice_.blocks);
}

// The copies of a phase go to a stream beside the launch's when there is something to do beside
// them. Two such streams take turns: a copy engine takes some 10 us from one copy to the next of a
// stream, and the copies of the other stream go on meanwhile.
Result<void> Plan::QueuePhase(const cotune_launch_t& launch, const KernelArguments& arguments,
                              size_t phase) {
  const auto stream = static_cast<gpu::CuStream>(launch.stream.handle);
  const auto& [own, ends_earlier_copies, copies] = copies_.phases[phase];
  Result<void> done;
  if (own) done = CopyHere(launch, arguments, *own, stream);
  if (done && ends_earlier_copies) done = JoinCopies(launch);
  if (done) done = LaunchKernel(arguments, stream, 1);
  if (!done || copies.empty()) return done;
  const bool is_last = phase + 1 == copies_.phases.size();
  const bool has_work_beside =
      is_last ? copies_.last_own.has_value() : !copies_.phases[phase + 1].ends_earlier_copies;
  if (!has_work_beside) return QueueCopies(launch, arguments, copies, stream);
  COTUNE_TRY(const auto side, group_.side_stream(phase % kSideStreams).Fork(stream));
  return QueueCopies(launch, arguments, copies, side);
}

Result<void> Plan::JoinCopies(const cotune_launch_t& launch) {
  Result<void> done;
  for (size_t which = 0; which < kSideStreams; ++which) {
    const auto joined =
        group_.side_stream(which).Join(static_cast<gpu::CuStream>(launch.stream.handle));
    if (done) done = joined;
  }
  return done;
}

Result<void> Plan::LaunchCopies(const cotune_launch_t& launch, KernelArguments arguments) {
  arguments.segment = -1;
  Result<void> done;
  for (size_t phase = 0; done && phase < copies_.phases.size(); ++phase) {
    done = QueuePhase(launch, arguments, phase);
  }
  if (done && copies_.last_own) {
    done = CopyHere(launch, arguments, *copies_.last_own, launch.stream.handle);
  }
  // Also after a failure: a capture with a stream that was not joined cannot end.
  const auto joined = JoinCopies(launch);
  if (!done) return done;
  return joined ? LaunchKernel(arguments, launch.stream.handle, 1) : joined;
}

Result<KernelArguments> Plan::ArgumentsOf(const cotune_launch_t& launch) const {
  KernelArguments arguments = group_.arguments();
  arguments.send = launch.send;
  arguments.recv = launch.recv;
  arguments.count = problem_.count;
  arguments.root = problem_.root;
  arguments.chunk_bytes = choice_.chunk_bytes;
  arguments.call = call_;
  if (choice_.family->peer_buffers != PeerBuffers::kNone) {
    COTUNE_RETURN_IF_ERROR(FindPeerBuffers(launch, arguments));
  }
  // A length of time, because a captured launch runs again later.
  const int64_t now_ns = group_.host().now_ns(group_.host().context);
  arguments.timeout_ticks =
      TicksOf(static_cast<unsigned long long>(std::max<int64_t>(0, launch.deadline_ns - now_ns)));
  return arguments;
}

Result<void> Plan::LaunchKernel(const KernelArguments& arguments, void* stream, int blocks) {
  void* parameters[] = {const_cast<KernelArguments*>(&arguments)};
  return cuda::LaunchKernel(group_.gpu(), function_, parameters,
                            {.blocks = static_cast<unsigned int>(blocks),
                             .threads = static_cast<unsigned int>(choice_.spec.threads),
                             .uses_pdl = choice_.spec.uses_pdl,
                             .stream = stream});
}

}  // namespace cotune::cuda
