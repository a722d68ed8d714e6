// reduce_scatter and all_to_all.
#include <algorithm>
#include <vector>

#include "plugins/ucx/algorithms.h"

namespace cotune::ucx {
namespace {

using B = ScheduleBuilder;

// Blocks in a row.
struct BlockRange {
  int begin = 0;
  int blocks = 0;
};

// The blocks of the ranks [low, low + size) of the exchange, and of the extra ranks behind them.
std::vector<BlockRange> BlocksOf(int world_size, int full, int low, int size) {
  std::vector<BlockRange> ranges = {{low, size}};
  const int extras = std::min(size, world_size - full - low);
  if (extras > 0) ranges.push_back({full + low, extras});
  return ranges;
}

}  // namespace

Schedule ScheduleReduceScatterHalving(const Problem& problem, int rank,
                                      const Parameters& parameters) {
  const int world_size = problem.world_size;
  const KnomialShape shape = KnomialShapeOf(world_size, parameters.radix);
  const int full = shape.full;
  const int extras = shape.Extras(world_size);
  B b(problem, rank, {.parameters = parameters});
  const int combined = b.AddRegion(world_size);
  const int for_extra = b.AddRegion();
  const int folded = b.AddRegion(world_size);
  std::vector<int> received;
  for (int i = 0; i < shape.LargestFactor(); ++i) {
    received.push_back(b.AddRegion(2 * (full / shape.factors.front())));
  }
  b.BeginLane();
  if (rank >= full) {
    b.BeginStep();
    b.Send(rank - full, B::Input(), b.Blocks(world_size));
    b.BeginStep();
    b.Receive(rank - full, B::Output(), b.All());
    return b.Finish();
  }
  const bool folds = rank < extras;
  if (folds) {
    b.BeginStep();
    b.Receive(rank + full, B::Scratch(folded, false), b.Blocks(world_size));
    b.Reduce({B::Input(), B::Scratch(folded, false)}, B::Scratch(combined, true),
             b.Blocks(world_size), false);
  }
  int low = 0;
  int size = full;
  for (size_t step = 0; step < shape.factors.size(); ++step) {
    const int factor = shape.factors[step];
    const int share = size / factor;
    const int digit = (rank - low) / share;
    const auto own = [&](int block) {
      return step > 0 || folds ? B::Scratch(combined, true, block) : B::Input(block);
    };
    const std::vector<BlockRange> kept = BlocksOf(world_size, full, low + digit * share, share);
    b.BeginStep();
    std::vector<std::vector<Place>> sources(kept.size());
    for (int j = 0; j < factor; ++j) {
      const int peer = rank + (j - digit) * share;
      if (j != digit) {
        for (const BlockRange& range : BlocksOf(world_size, full, low + j * share, share)) {
          b.Send(peer, own(range.begin), b.Blocks(range.blocks));
        }
      }
      for (size_t k = 0; k < kept.size(); ++k) {
        const Place arrival = B::Scratch(received[static_cast<size_t>(j)],
                                         step > 0 || peer < extras, k == 0 ? 0 : share);
        sources[k].push_back(j == digit ? own(kept[k].begin) : arrival);
        if (j != digit) b.Receive(peer, arrival, b.Blocks(kept[k].blocks));
      }
    }
    const bool is_last = step + 1 == shape.factors.size();
    for (size_t k = 0; k < kept.size(); ++k) {
      const Place result = k == 0 ? B::Output() : B::Scratch(for_extra, false);
      b.Reduce(sources[k], is_last ? result : B::Scratch(combined, true, kept[k].begin),
               b.Blocks(kept[k].blocks), is_last);
    }
    low += digit * share;
    size = share;
  }
  if (folds) {
    b.BeginStep();
    b.Send(rank + full, B::Scratch(for_extra, false), b.All());
  }
  return b.Finish();
}

Schedule ScheduleReduceScatterRing(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parameters = parameters});
  const int received = b.AddRegion();
  const int combined = b.AddRegion();
  const auto block = [&](int distance) { return (rank - distance + 2 * world_size) % world_size; };
  b.BeginLane();
  for (int i = 0; i + 1 < world_size; ++i) {
    const Place arrival = B::Scratch(received, i > 0);
    const bool is_last = i + 2 == world_size;
    b.BeginStep();
    b.Send((rank + 1) % world_size, i == 0 ? B::Input(block(1)) : B::Scratch(combined, true),
           b.All());
    b.Receive((rank + world_size - 1) % world_size, arrival, b.All());
    b.Reduce({arrival, B::Input(block(i + 2))}, is_last ? B::Output() : B::Scratch(combined, true),
             b.All(), is_last);
  }
  return b.Finish();
}

// Blocks travel the digits of their distance one after the other, many in a message.
Schedule ScheduleAllToAllBruck(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  const int radix = parameters.radix;
  B b(problem, rank, {.parameters = parameters});
  const int blocks = b.AddRegion(world_size);  // block i is i ranks from where it goes
  const int outgoing = b.AddRegion(world_size);
  const int incoming = b.AddRegion(world_size);
  const auto at = [](int region, int block) { return B::Scratch(region, false, block); };
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(rank), at(blocks, 0), b.Blocks(world_size - rank));
  if (rank > 0) b.Copy(B::Input(), at(blocks, world_size - rank), b.Blocks(rank));
  for (int stride = 1; stride < world_size; stride *= radix) {
    struct Parcel {
      int digit;
      int begin;
      std::vector<int> members;
    };
    std::vector<Parcel> parcels;
    int packed = 0;
    for (int digit = 1; digit < radix; ++digit) {
      Parcel parcel{digit, packed, {}};
      for (int i = digit * stride; i < world_size; ++i) {
        if (i / stride % radix == digit) parcel.members.push_back(i);
      }
      packed += static_cast<int>(parcel.members.size());
      if (!parcel.members.empty()) parcels.push_back(std::move(parcel));
    }
    b.BeginStep();
    for (const Parcel& parcel : parcels) {
      for (size_t m = 0; m < parcel.members.size(); ++m) {
        b.Copy(at(blocks, parcel.members[m]), at(outgoing, parcel.begin + static_cast<int>(m)),
               b.All());
      }
    }
    b.BeginStep();
    for (const Parcel& parcel : parcels) {
      const int distance = parcel.digit * stride;
      const Span span = b.Blocks(static_cast<int>(parcel.members.size()));
      b.Send((rank + distance) % world_size, at(outgoing, parcel.begin), span);
      b.Receive((rank - distance + world_size) % world_size, at(incoming, parcel.begin), span);
      for (size_t m = 0; m < parcel.members.size(); ++m) {
        b.Copy(at(incoming, parcel.begin + static_cast<int>(m)), at(blocks, parcel.members[m]),
               b.All());
      }
    }
  }
  b.BeginStep();
  for (int i = 0; i < world_size; ++i) {
    b.Copy(at(blocks, i), B::Output((rank - i + world_size) % world_size), b.All());
  }
  return b.Finish();
}

// In each lane ranks meet in pairs, so that in place one block goes and comes at one place.
Schedule ScheduleAllToAllPairwise(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parameters = parameters});
  const int staging = problem.in_place ? b.AddRegion() : 0;
  for (int lane = 0; lane < world_size; ++lane) {
    const int peer = (lane - rank + world_size) % world_size;
    b.BeginLane();
    b.BeginStep();
    if (peer == rank) {
      b.Copy(B::Input(rank), B::Output(rank), b.All());
      continue;
    }
    b.Send(peer, B::Input(peer), b.All());
    b.Receive(peer, problem.in_place ? B::Scratch(staging, false) : B::Output(peer), b.All());
    if (problem.in_place) b.Copy(B::Scratch(staging, false), B::Output(peer), b.All());
  }
  return b.Finish();
}

}  // namespace cotune::ucx
