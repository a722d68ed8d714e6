// all_gather and broadcast.
#include <algorithm>

#include "plugins/ucx/algorithms.h"

namespace cotune::ucx {
namespace {

using B = ScheduleBuilder;

// Ranks are numbered from the root.
class RootedRanks {
 public:
  explicit RootedRanks(const Problem& problem)
      : world_size_(problem.world_size), root_(problem.root) {}
  int NumberOf(int rank) const { return (rank - root_ + world_size_) % world_size_; }
  int RankOf(int number) const { return (number + root_) % world_size_; }

 private:
  const int world_size_;
  const int root_;
};

// The root has the data in its input, and keeps a copy.
Place AppendRootCopy(B& b, bool is_root) {
  if (!is_root) return B::Output();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(), b.All());
  return B::Input();
}

// How many of the parts from its own on a rank gets by the scatter: the lowest bit of its number.
int ScatteredParts(int world_size, int number) {
  return number == 0 ? world_size : std::min(number & -number, world_size - number);
}

}  // namespace

Schedule ScheduleAllGatherKnomial(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  const KnomialShape shape = KnomialShapeOf(world_size, parameters.radix);
  const int full = shape.full;
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(rank), b.All());
  if (rank >= full) {
    b.BeginStep();
    b.Send(rank - full, B::Output(rank), b.All());
    b.BeginStep();
    if (rank > 0) b.Receive(rank - full, B::Output(), b.Blocks(rank));
    if (rank + 1 < world_size) {
      b.Receive(rank - full, B::Output(rank + 1), b.Blocks(world_size - rank - 1));
    }
    return b.Finish();
  }
  const int extra = rank + full;
  if (extra < world_size) {
    b.BeginStep();
    b.Receive(extra, B::Output(extra), b.All());
  }
  // A rank has the blocks of its group of `held` ranks, and of the extra ranks of these.
  int held = 1;
  for (const int factor : shape.factors) {
    const int group = rank / held;
    const int digit = group % factor;
    b.BeginStep();
    for (int j = 0; j < factor; ++j) {
      if (j == digit) continue;
      const int peer = rank + (j - digit) * held;
      for (const int base : {0, full}) {
        const int own_begin = base + group * held;
        const int own = std::min(held, world_size - own_begin);
        if (own > 0) b.Send(peer, B::Output(own_begin), b.Blocks(own));
        const int begin = own_begin + (j - digit) * held;
        const int blocks = std::min(held, world_size - begin);
        if (blocks > 0) b.Receive(peer, B::Output(begin), b.Blocks(blocks));
      }
    }
    held *= factor;
  }
  if (extra < world_size) {
    b.BeginStep();
    b.Send(extra, B::Output(), b.Blocks(extra));
    if (extra + 1 < world_size) {
      b.Send(extra, B::Output(extra + 1), b.Blocks(world_size - extra - 1));
    }
  }
  return b.Finish();
}

// Blocks lie at their places from the begin: what a rank has is the blocks from its own on, around
// the end, so that a message is cut in two there.
Schedule ScheduleAllGatherBruck(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(rank), b.All());
  const auto for_pieces = [&](int first, int blocks, auto append) {
    const int before_end = std::min(blocks, world_size - first);
    append(B::Output(first), b.Blocks(before_end));
    if (blocks > before_end) append(B::Output(), b.Blocks(blocks - before_end));
  };
  for (int held = 1; held < world_size; held *= parameters.radix) {
    b.BeginStep();
    for (int j = 1; j < parameters.radix && j * held < world_size; ++j) {
      const int blocks = std::min(held, world_size - j * held);
      const int to = (rank + world_size - j * held) % world_size;
      const int from = (rank + j * held) % world_size;
      for_pieces(rank, blocks, [&](Place place, Span span) { b.Send(to, place, span); });
      for_pieces(from, blocks, [&](Place place, Span span) { b.Receive(from, place, span); });
    }
  }
  return b.Finish();
}

Schedule ScheduleAllGatherRing(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parameters = parameters});
  const auto block = [&](int distance) {
    return B::Output((rank - distance + world_size) % world_size);
  };
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(rank), b.All());
  for (int i = 0; i + 1 < world_size; ++i) {
    b.BeginStep();
    b.Send((rank + 1) % world_size, block(i), b.All());
    b.Receive((rank + world_size - 1) % world_size, block(i + 1), b.All());
  }
  return b.Finish();
}

Schedule ScheduleAllGatherLinear(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  b.BeginStep();
  b.Copy(B::Input(), B::Output(rank), b.All());
  for (int distance = 1; distance < world_size; ++distance) {
    const int from = (rank - distance + world_size) % world_size;
    b.BeginLane();
    b.BeginStep();
    b.Send((rank + distance) % world_size, B::Input(), b.All());
    b.Receive(from, B::Output(from), b.All());
  }
  return b.Finish();
}

Schedule ScheduleBroadcastKnomial(const Problem& problem, int rank, const Parameters& parameters) {
  const int world_size = problem.world_size;
  const int radix = parameters.radix;
  const RootedRanks ranks(problem);
  const int number = ranks.NumberOf(rank);
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  const Place data = AppendRootCopy(b, number == 0);
  // The distance to the first sibling; the children are nearer.
  int reach = 1;
  while (reach < world_size && number / reach % radix == 0) reach *= radix;
  if (number != 0) {
    b.BeginStep();
    b.Receive(ranks.RankOf(number - number / reach % radix * reach), data, b.All());
  }
  b.BeginStep();
  for (int distance = reach / radix; distance > 0; distance /= radix) {
    for (int j = 1; j < radix && number + j * distance < world_size; ++j) {
      b.Send(ranks.RankOf(number + j * distance), data, b.All());
    }
  }
  return b.Finish();
}

Schedule ScheduleBroadcastScatterGather(const Problem& problem, int rank,
                                        const Parameters& parameters) {
  const int world_size = problem.world_size;
  const RootedRanks ranks(problem);
  const int number = ranks.NumberOf(rank);
  B b(problem, rank,
      {.parts = world_size, .messages_per_segment = world_size, .parameters = parameters});
  b.BeginLane();
  const Place data = AppendRootCopy(b, number == 0);
  const int own = ScatteredParts(world_size, number);
  if (number != 0) {
    b.BeginStep();
    b.Receive(ranks.RankOf(number & (number - 1)), data, B::Parts(number, number + own));
  }
  b.BeginStep();
  int distance = 1;
  while (distance * 2 < own) distance *= 2;
  for (; distance > 0; distance /= 2) {
    const int child = number + distance;
    if (distance >= own || child >= world_size) continue;
    b.Send(ranks.RankOf(child), data, B::Parts(child, child + ScatteredParts(world_size, child)));
  }
  // Around the ring goes what the next rank has not got by the scatter.
  const auto lacks = [&](int who, int part) {
    return part < who || part >= who + ScatteredParts(world_size, who);
  };
  const int next = (number + 1) % world_size;
  const int previous = (number + world_size - 1) % world_size;
  for (int i = 0; i + 1 < world_size; ++i) {
    const int outgoing = (number - i + world_size) % world_size;
    const int incoming = (previous - i + world_size) % world_size;
    b.BeginStep();
    if (lacks(next, outgoing)) {
      b.Send(ranks.RankOf(next), data, B::Parts(outgoing, outgoing + 1));
    }
    if (lacks(number, incoming)) {
      b.Receive(ranks.RankOf(previous), data, B::Parts(incoming, incoming + 1));
    }
  }
  return b.Finish();
}

Schedule ScheduleBroadcastChain(const Problem& problem, int rank, const Parameters& parameters) {
  const RootedRanks ranks(problem);
  const int number = ranks.NumberOf(rank);
  B b(problem, rank, {.parameters = parameters});
  b.BeginLane();
  const Place data = AppendRootCopy(b, number == 0);
  if (number != 0) {
    b.BeginStep();
    b.Receive(ranks.RankOf(number - 1), data, b.All());
  }
  if (number + 1 < problem.world_size) {
    b.BeginStep();
    b.Send(ranks.RankOf(number + 1), data, b.All());
  }
  return b.Finish();
}

}  // namespace cotune::ucx
