// How ranks tell each other of their memory, and that nothing of it stays in the job's store.
#include "plugins/cuda/group/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cotune::cuda {
namespace {

using sdk::Result;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

int64_t NowNs(void* /*context*/) {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}
int64_t Soon() { return NowNs(nullptr) + 60 * kSecondNs; }

// The store of a job whose ranks are threads; it counts what is in it.
class CountingStore {
 public:
  CountingStore() {
    host_.struct_size = sizeof(host_);
    host_.context = this;
    host_.now_ns = NowNs;
    host_.store_put = Put;
    host_.store_get = Get;
    host_.store_delete = Delete;
  }
  const cotune_host_t& host() const { return host_; }
  size_t keys() const { return values_.size(); }
  size_t most_keys() const { return most_keys_; }

 private:
  static cotune_status_t Put(void* context, const char* key, const void* data, uint64_t size) {
    auto& store = *static_cast<CountingStore*>(context);
    const std::lock_guard lock(store.mutex_);
    store.values_[key] = std::string(static_cast<const char*>(data), size);
    store.most_keys_ = std::max(store.most_keys_, store.values_.size());
    store.changed_.notify_all();
    return COTUNE_OK;
  }
  static cotune_status_t Get(void* context, const char* key, void* data, uint64_t capacity,
                             uint64_t* size, int64_t deadline_ns) {
    auto& store = *static_cast<CountingStore*>(context);
    std::unique_lock lock(store.mutex_);
    const auto left = std::chrono::nanoseconds(std::max<int64_t>(deadline_ns - NowNs(nullptr), 0));
    if (!store.changed_.wait_for(lock, left, [&] { return store.values_.count(key) != 0; })) {
      return COTUNE_DEADLINE_EXCEEDED;
    }
    const std::string& value = store.values_[key];
    if (value.size() > capacity) return COTUNE_INVALID_ARGUMENT;
    std::memcpy(data, value.data(), value.size());
    *size = value.size();
    return COTUNE_OK;
  }
  static cotune_status_t Delete(void* context, const char* key) {
    auto& store = *static_cast<CountingStore*>(context);
    const std::lock_guard lock(store.mutex_);
    store.values_.erase(key);
    return COTUNE_OK;
  }

  cotune_host_t host_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  size_t most_keys_ = 0;
};

class RendezvousTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Rendezvous Rank(int rank) {
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = "g";
    params.rank = rank;
    params.world_size = kRanks;
    return Rendezvous(store_.host(), params);
  }
  void RunRanks(const std::function<void(int rank, Rendezvous& meeting)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank, &body] {
        Rendezvous meeting = Rank(rank);
        body(rank, meeting);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static Result<MemoryOffer> OfferOf(int rank) {
    MemoryOffer offer;
    offer.bytes = 100 + static_cast<uint64_t>(rank);
    return offer;
  }

  CountingStore store_;
};

TEST_F(RendezvousTest, EveryRankReadsAll) {
  RunRanks([](int rank, Rendezvous& meeting) {
    const auto all = meeting.Exchange("offer", OfferOf(rank), Soon());
    ASSERT_TRUE(all) << all.error().message;
    for (size_t peer = 0; peer < kRanks; ++peer) EXPECT_EQ((*all)[peer].bytes, 100 + peer);
  });
}

// The store of a job takes 128 Ki keys.
TEST_F(RendezvousTest, AnyNumberOfExchangesFitsIntoTheStore) {
  RunRanks([](int rank, Rendezvous& meeting) {
    for (int i = 0; i < 2'000; ++i) {
      const std::string shown = "memory" + std::to_string(i);
      const std::string mapped = "mapped" + std::to_string(i);
      ASSERT_TRUE(meeting.Exchange(shown, OfferOf(rank), Soon()));
      ASSERT_TRUE(meeting.Exchange(mapped, OfferOf(rank), Soon()));
      meeting.Part({shown, mapped}, Soon());
    }
  });
  EXPECT_EQ(store_.keys(), 0u);
  // Two phases and a farewell, while the fastest rank has begun the next.
  EXPECT_LE(store_.most_keys(), 2u * 3u * kRanks);
}

// A registration that one rank refuses is refused by all, and may be tried again and again.
TEST_F(RendezvousTest, AFailureIsToldToAllAndLeavesNothing) {
  RunRanks([](int rank, Rendezvous& meeting) {
    for (int i = 0; i < 500; ++i) {
      const std::string shown = "memory" + std::to_string(i);
      Result<MemoryOffer> own = OfferOf(rank);
      if (rank == i % kRanks) own = sdk::Fail(COTUNE_UNSUPPORTED, "not mine");
      const auto all = meeting.Exchange(shown, own, Soon());
      ASSERT_FALSE(all);
      EXPECT_EQ(all.error().status, COTUNE_UNSUPPORTED);
      EXPECT_THAT(all.error().message, HasSubstr("not mine"));
      EXPECT_EQ(all.error().failed_rank, rank == i % kRanks ? -1 : i % kRanks);
      meeting.Part({shown, "mapped" + std::to_string(i)}, Soon());
    }
  });
  EXPECT_EQ(store_.keys(), 0u);
}

// What a rank that comes late has to read is not deleted by those that gave it up.
TEST_F(RendezvousTest, ALateRankStillReadsWhyTheOthersFailed) {
  Rendezvous first = Rank(0);
  const auto alone = first.Exchange("offer", OfferOf(0), NowNs(nullptr));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().status, COTUNE_PEER_FAILED);
  EXPECT_EQ(alone.error().failed_rank, 1);
  first.Part({"offer", "ready"}, NowNs(nullptr));
  Rendezvous second = Rank(1);
  EXPECT_FALSE(second.Exchange("offer", sdk::Fail(COTUNE_INTERNAL, "broken"), Soon()));
  second.Part({"offer", "ready"}, Soon());
  Rendezvous late = Rank(2);
  const auto told = late.Exchange("offer", OfferOf(2), Soon());
  ASSERT_FALSE(told);
  EXPECT_THAT(told.error().message, HasSubstr("rank 1 of the group: broken"));
}

}  // namespace
}  // namespace cotune::cuda
