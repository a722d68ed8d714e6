#include "tests/multi_process/testing/c_api_calls.h"

#include "fmt/format.h"

namespace cotune {

void Complain(TestLink& link, const cotune_group* group, const std::string& what) {
  link.Report(fmt::format("{}: {}", what, cotune_last_error(group)));
}

float Sent(int rank, uint64_t i) { return static_cast<float>((i * 5 + 1) % 53 + rank * 100); }

std::vector<float> SendBuffer(int rank, uint64_t elements) {
  std::vector<float> send(elements);
  for (uint64_t i = 0; i < elements; ++i) send[i] = Sent(rank, i);
  return send;
}

void ExpectValues(TestLink& link, const cotune_group* group, const char* what, cotune_result result,
                  const std::vector<float>& recv, const std::function<float(uint64_t)>& expected) {
  if (result != COTUNE_SUCCESS) return Complain(link, group, what);
  for (uint64_t i = 0; i < recv.size(); ++i) {
    if (recv[i] == expected(i)) continue;
    link.Report(fmt::format("{} element {}: {} is not {}", what, i, recv[i], expected(i)));
    return;
  }
}

void RunAllCollectives(cotune_group* group, uint64_t count, const std::vector<int>& ids,
                       TestLink& link) {
  const int rank = cotune_group_rank(group);
  const auto size = static_cast<uint64_t>(cotune_group_size(group));
  const auto sum = [&](uint64_t i) {
    float total = 0;
    for (int id : ids) total += Sent(id, i);
    return total;
  };
  const std::vector<float> one = SendBuffer(ids[rank], count);
  const std::vector<float> all = SendBuffer(ids[rank], count * size);
  std::vector<float> small(count);
  std::vector<float> large(count * size);
  ExpectValues(
      link, group, "all_reduce",
      cotune_all_reduce(group, one.data(), small.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM),
      small, sum);
  ExpectValues(link, group, "all_gather",
               cotune_all_gather(group, one.data(), large.data(), count, COTUNE_F32), large,
               [&](uint64_t i) { return Sent(ids[i / count], i % count); });
  ExpectValues(
      link, group, "reduce_scatter",
      cotune_reduce_scatter(group, all.data(), small.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM),
      small, [&](uint64_t i) { return sum(rank * count + i); });
  ExpectValues(link, group, "all_to_all",
               cotune_all_to_all(group, all.data(), large.data(), count, COTUNE_F32), large,
               [&](uint64_t i) { return Sent(ids[i / count], rank * count + i % count); });
  const int root = static_cast<int>(size) - 1;
  ExpectValues(link, group, "broadcast",
               cotune_broadcast(group, rank == root ? one.data() : nullptr, small.data(), count,
                                COTUNE_F32, root),
               small, [&](uint64_t i) { return Sent(ids[root], i); });
  std::vector<float> in_place = one;
  ExpectValues(link, group, "all_reduce in place",
               cotune_all_reduce(group, in_place.data(), in_place.data(), count, COTUNE_F32,
                                 COTUNE_REDUCE_SUM),
               in_place, sum);
}

void RunAllInPlace(cotune_group* group, uint64_t count, TestLink& link) {
  const int rank = cotune_group_rank(group);
  const auto sum = [](uint64_t i) { return Sent(0, i) + Sent(1, i) + Sent(2, i) + Sent(3, i); };
  std::vector<float> x = SendBuffer(rank, count);
  ExpectValues(link, group, "all_reduce in place",
               cotune_all_reduce(group, x.data(), x.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM),
               x, sum);
  x = SendBuffer(rank, count);
  ExpectValues(link, group, "broadcast in place",
               cotune_broadcast(group, x.data(), x.data(), count, COTUNE_F32, 1), x,
               [](uint64_t i) { return Sent(1, i); });
  x = SendBuffer(rank, count * kWorldSize);
  ExpectValues(link, group, "all_to_all in place",
               cotune_all_to_all(group, x.data(), x.data(), count, COTUNE_F32), x,
               [&](uint64_t i) { return Sent(i / count, rank * count + i % count); });
  x.assign(count * kWorldSize, 0);
  float* block = x.data() + rank * count;
  for (uint64_t i = 0; i < count; ++i) block[i] = Sent(rank, i);
  ExpectValues(link, group, "all_gather in place",
               cotune_all_gather(group, block, x.data(), count, COTUNE_F32), x,
               [&](uint64_t i) { return Sent(i / count, i % count); });
  x = SendBuffer(rank, count * kWorldSize);
  block = x.data() + rank * count;
  const cotune_result result =
      cotune_reduce_scatter(group, x.data(), block, count, COTUNE_F32, COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "reduce_scatter in place", result, {block, block + count},
               [&](uint64_t i) { return sum(rank * count + i); });
}

}  // namespace cotune
