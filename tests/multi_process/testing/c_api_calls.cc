#include "tests/multi_process/testing/c_api_calls.h"

#include <cstddef>
#include <cstring>
#include <span>

#include "core/problem/expected_collective.h"
#include "core/problem/problem.h"
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

namespace {

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The receive buffer of `rank` by the reference evaluator, when rank i of the group sends
// SendBuffer(ids[i]).
std::vector<float> Expected(Collective collective, uint64_t count, int rank,
                            const std::vector<int>& ids, int root = 0) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
  problem.cls.world_size = problem.cls.ranks_per_node = static_cast<int32_t>(ids.size());
  problem.cls.root = root;
  problem.count = count;
  SentByRanks sent;
  for (const int id : ids) sent.push_back(BytesOf(SendBuffer(id, problem.send_elements())));
  const std::vector<std::byte> bytes = ExpectedBytes(problem, rank, sent).value();
  std::vector<float> received(problem.recv_elements());
  std::memcpy(received.data(), bytes.data(), bytes.size());
  return received;
}

void ExpectValues(TestLink& link, const cotune_group* group, const char* what, cotune_result result,
                  const std::vector<float>& recv, const std::vector<float>& expected) {
  if (result != COTUNE_SUCCESS) return Complain(link, group, what);
  for (uint64_t i = 0; i < recv.size(); ++i) {
    if (recv[i] == expected[i]) continue;
    link.Report(fmt::format("{} element {}: {} is not {}", what, i, recv[i], expected[i]));
    return;
  }
}

}  // namespace

void RunAllCollectives(cotune_group* group, uint64_t count, const std::vector<int>& ids,
                       TestLink& link) {
  const int rank = cotune_group_rank(group);
  const auto size = static_cast<uint64_t>(cotune_group_size(group));
  const auto expected = [&](Collective collective, int root = 0) {
    return Expected(collective, count, rank, ids, root);
  };
  const std::vector<float> one = SendBuffer(ids[rank], count);
  const std::vector<float> all = SendBuffer(ids[rank], count * size);
  std::vector<float> small(count);
  std::vector<float> large(count * size);
  cotune_result result =
      cotune_all_reduce(group, one.data(), small.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "all_reduce", result, small, expected(Collective::kAllReduce));
  result = cotune_all_gather(group, one.data(), large.data(), count, COTUNE_F32);
  ExpectValues(link, group, "all_gather", result, large, expected(Collective::kAllGather));
  result =
      cotune_reduce_scatter(group, all.data(), small.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "reduce_scatter", result, small, expected(Collective::kReduceScatter));
  result = cotune_all_to_all(group, all.data(), large.data(), count, COTUNE_F32);
  ExpectValues(link, group, "all_to_all", result, large, expected(Collective::kAllToAll));
  const int root = static_cast<int>(size) - 1;
  result = cotune_broadcast(group, rank == root ? one.data() : nullptr, small.data(), count,
                            COTUNE_F32, root);
  ExpectValues(link, group, "broadcast", result, small, expected(Collective::kBroadcast, root));
  std::vector<float> in_place = one;
  result = cotune_all_reduce(group, in_place.data(), in_place.data(), count, COTUNE_F32,
                             COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "all_reduce in place", result, in_place,
               expected(Collective::kAllReduce));
}

void RunAllInPlace(cotune_group* group, uint64_t count, TestLink& link) {
  const int rank = cotune_group_rank(group);
  const auto expected = [&](Collective collective, int root = 0) {
    return Expected(collective, count, rank, {0, 1, 2, 3}, root);
  };
  std::vector<float> x = SendBuffer(rank, count);
  cotune_result result =
      cotune_all_reduce(group, x.data(), x.data(), count, COTUNE_F32, COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "all_reduce in place", result, x, expected(Collective::kAllReduce));
  x = SendBuffer(rank, count);
  result = cotune_broadcast(group, x.data(), x.data(), count, COTUNE_F32, 1);
  ExpectValues(link, group, "broadcast in place", result, x, expected(Collective::kBroadcast, 1));
  x = SendBuffer(rank, count * kWorldSize);
  result = cotune_all_to_all(group, x.data(), x.data(), count, COTUNE_F32);
  ExpectValues(link, group, "all_to_all in place", result, x, expected(Collective::kAllToAll));
  x.assign(count * kWorldSize, 0);
  float* block = x.data() + rank * count;
  for (uint64_t i = 0; i < count; ++i) block[i] = Sent(rank, i);
  result = cotune_all_gather(group, block, x.data(), count, COTUNE_F32);
  ExpectValues(link, group, "all_gather in place", result, x, expected(Collective::kAllGather));
  x = SendBuffer(rank, count * kWorldSize);
  block = x.data() + rank * count;
  result = cotune_reduce_scatter(group, x.data(), block, count, COTUNE_F32, COTUNE_REDUCE_SUM);
  ExpectValues(link, group, "reduce_scatter in place", result, {block, block + count},
               expected(Collective::kReduceScatter));
}

}  // namespace cotune
