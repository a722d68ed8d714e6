// Each rank of a group reads the words of the others, and nothing stays in the job's store.
#include "plugins/sdk/rendezvous.h"

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

namespace cotune::sdk {
namespace {

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
  // From here on waits for keys that are not there end as those of a job that has lost a rank.
  void LoseARank() { has_lost_rank_ = true; }
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
    if (store.has_lost_rank_ && store.values_.count(key) == 0) return COTUNE_PEER_FAILED;
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
  bool has_lost_rank_ = false;
};

struct Offer {
  uint64_t bytes = 0;
};

class RendezvousTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Rendezvous Rank(int rank) {
    static constexpr int32_t kJobRanks[kRanks] = {10, 11, 12};
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = "g";
    params.rank = rank;
    params.world_size = kRanks;
    params.job_ranks = kJobRanks;
    return Rendezvous(store_.host(), params, "probe");
  }
  void RunRanks(const std::function<void(int rank, const Rendezvous& meeting)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([this, rank, &body] {
        const Rendezvous meeting = Rank(rank);
        body(rank, meeting);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static Result<Offer> OfferOf(int rank) {
    Offer offer;
    offer.bytes = 100 + static_cast<uint64_t>(rank);
    return offer;
  }

  CountingStore store_;
};

TEST_F(RendezvousTest, EveryRankReadsAll) {
  RunRanks([](int rank, const Rendezvous& meeting) {
    const auto all = meeting.Exchange("offer", OfferOf(rank), Soon());
    ASSERT_TRUE(all) << all.error().message;
    for (size_t peer = 0; peer < kRanks; ++peer) EXPECT_EQ((*all)[peer].bytes, 100 + peer);
  });
}

// The store of a job takes 128 Ki keys.
TEST_F(RendezvousTest, AnyNumberOfExchangesFitsIntoTheStore) {
  RunRanks([](int rank, const Rendezvous& meeting) {
    for (int i = 0; i < 2'000; ++i) {
      const std::string shown = "memory" + std::to_string(i);
      const std::string mapped = "mapped" + std::to_string(i);
      ASSERT_TRUE(meeting.Exchange(shown, OfferOf(rank), Soon()));
      ASSERT_TRUE(meeting.Exchange(mapped, OfferOf(rank), Soon()));
      ASSERT_TRUE(meeting.Part({shown, mapped}, Soon()));
    }
  });
  EXPECT_EQ(store_.keys(), 0u);
  // Two phases and a farewell, while the fastest rank has begun the next.
  EXPECT_LE(store_.most_keys(), 2u * 3u * kRanks);
}

// A registration that one rank refuses is refused by all, and may be tried again and again.
TEST_F(RendezvousTest, AFailureIsToldToAllAndLeavesNothing) {
  RunRanks([](int rank, const Rendezvous& meeting) {
    for (int i = 0; i < 500; ++i) {
      const std::string shown = "memory" + std::to_string(i);
      Result<Offer> own = OfferOf(rank);
      if (rank == i % kRanks) own = Fail(COTUNE_UNSUPPORTED, "not mine");
      const auto all = meeting.Exchange(shown, own, Soon());
      ASSERT_FALSE(all);
      EXPECT_EQ(all.error().status, COTUNE_UNSUPPORTED);
      EXPECT_THAT(all.error().message, HasSubstr("not mine"));
      EXPECT_EQ(all.error().failed_rank, rank == i % kRanks ? -1 : i % kRanks);
      ASSERT_TRUE(meeting.Part({shown, "mapped" + std::to_string(i)}, Soon()));
    }
  });
  EXPECT_EQ(store_.keys(), 0u);
}

// Ranks that gave up a late rank do not delete what it has to read.
TEST_F(RendezvousTest, ALateRankStillReadsWhyTheOthersFailed) {
  Rendezvous first = Rank(0);
  const auto alone = first.Exchange("offer", OfferOf(0), NowNs(nullptr));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().status, COTUNE_PEER_FAILED);
  EXPECT_EQ(alone.error().failed_rank, 1);
  EXPECT_FALSE(first.Part({"offer", "ready"}, NowNs(nullptr)));
  Rendezvous second = Rank(1);
  EXPECT_FALSE(second.Exchange<Offer>("offer", Fail(COTUNE_INTERNAL, "broken"), Soon()));
  EXPECT_TRUE(second.Part({"offer", "ready"}, Soon()));
  Rendezvous late = Rank(2);
  const auto told = late.Exchange("offer", OfferOf(2), Soon());
  ASSERT_FALSE(told);
  EXPECT_THAT(told.error().message, HasSubstr("job rank 11 (rank 1 of the group): broken"));
}

// Two ranks know that the third is missing; the late one reads it of the first of them.
TEST_F(RendezvousTest, ARankThatIsBlamedByAnotherIsTheOneAtFault) {
  const Rendezvous first = Rank(0);
  const Rendezvous second = Rank(1);
  EXPECT_FALSE(first.Exchange<Offer>("ready", Fail(COTUNE_PEER_FAILED, "no rank 2", 7, 2), Soon()));
  const auto told = second.Exchange("ready", OfferOf(1), Soon());
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().status, COTUNE_PEER_FAILED);
  EXPECT_EQ(told.error().native_code, 7);
  EXPECT_EQ(told.error().failed_rank, 2);
  EXPECT_EQ(told.error().message, "job rank 10 (rank 0 of the group): no rank 2");
}

TEST_F(RendezvousTest, TextsOfAnyLengthAreExchanged) {
  RunRanks([](int rank, const Rendezvous& meeting) {
    // Rank 0 has nothing to say, and rank 2 more than fits a word.
    const auto text_of = [](int of) { return std::string(static_cast<size_t>(of) * 3000, 'x'); };
    const auto all = meeting.ExchangeTexts("texts", text_of(rank), Soon());
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), 3u);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ((*all)[static_cast<size_t>(peer)], text_of(peer));
    }
  });
}

TEST_F(RendezvousTest, ARankWithoutATextSaysWhy) {
  const auto own = Rank(1).ExchangeTexts("texts", Fail(COTUNE_OUT_OF_RESOURCES, "broken"), Soon());
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().status, COTUNE_OUT_OF_RESOURCES);
  ASSERT_FALSE(Rank(0).ExchangeTexts("texts", std::string("here"), 0));
  const auto told = Rank(2).ExchangeTexts("texts", std::string("here"), Soon());
  ASSERT_FALSE(told);
  EXPECT_THAT(told.error().message, HasSubstr("job rank 11 (rank 1 of the group): broken"));
}

TEST_F(RendezvousTest, AMeetingLeavesNothing) {
  RunRanks([](int rank, const Rendezvous& meeting) {
    for (int i = 0; i < 100; ++i) {
      const auto all = meeting.Meet("join" + std::to_string(i), OfferOf(rank), Soon());
      ASSERT_TRUE(all) << all.error().message;
      EXPECT_EQ((*all)[2].bytes, 102u);
    }
  });
  EXPECT_EQ(store_.keys(), 0u);
}

TEST_F(RendezvousTest, AWordOfAnotherFormatIsNotRead) {
  struct Longer {
    uint64_t words[2] = {1, 2};
  };
  ASSERT_TRUE(Rank(0).Put("offer", OfferOf(0)));
  ASSERT_TRUE(Rank(1).Put("offer", Result<Longer>(Longer{})));
  for (const int peer : {0, 1}) {
    const auto longer = Rank(2).Get<Longer>("offer", peer, Soon());
    const auto offer = Rank(2).Get<Offer>("offer", peer, Soon());
    EXPECT_EQ(longer.has_value(), peer == 1);
    EXPECT_EQ(offer.has_value(), peer == 0);
    const std::string text = peer == 0 ? longer.error().message : offer.error().message;
    EXPECT_THAT(text, HasSubstr("do all ranks run the same probe plugin?"));
  }
  const std::string garbage(sizeof(Offer) + 300, 'x');
  store_.host().store_put(store_.host().context, "g/probe/bad/0", garbage.data(), garbage.size());
  EXPECT_FALSE(Rank(2).Get<Offer>("bad", 0, Soon()));
}

TEST_F(RendezvousTest, ARankThatGaveUpIsFoundByAllWithoutWaiting) {
  EXPECT_EQ(Rank(1).WhoGaveUp(), std::nullopt);
  Rank(2).GiveUp({COTUNE_OUT_OF_RESOURCES, 12, -1, "no memory"});
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto why = Rank(rank).WhoGaveUp();
    ASSERT_TRUE(why);
    EXPECT_EQ(why->status, COTUNE_OUT_OF_RESOURCES);
    EXPECT_EQ(why->native_code, 12);
    EXPECT_EQ(why->failed_rank, 2);
    EXPECT_EQ(why->message, "job rank 12 (rank 2 of the group): no memory");
  }
}

// The store ends waits when the control channel has lost a rank.
TEST_F(RendezvousTest, ALostRankEndsTheWait) {
  store_.LoseARank();
  const auto told = Rank(0).Exchange("offer", OfferOf(0), Soon());
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().status, COTUNE_PEER_FAILED);
  EXPECT_THAT(told.error().message, HasSubstr("a rank of the job was lost"));
}

}  // namespace
}  // namespace cotune::sdk
