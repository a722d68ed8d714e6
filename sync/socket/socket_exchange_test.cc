// The exchange over real sockets: what may join, what is refused, what crosses.
#include "sync/socket/socket_exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "sync/machine/rendezvous.h"
#include "sync/socket/unix_socket.h"
#include "sync/testing/rank_processes.h"
#include "sync/wire/frame_codec.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kDeadlineNs = 20 * kSecondNs;

using Exchange = Result<std::unique_ptr<RankExchange>>;

// Runs each rank of `options` on a thread of its own; a thread is as good as a process here, for
// the socket is real. `before` may hold a rank back.
void RunRanks(
    const std::vector<SocketExchangeOptions>& options,
    const std::function<void(size_t, Exchange)>& body,
    const std::function<void(size_t)>& before = [](size_t) {}) {
  const MonotonicClock clock;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] {
      before(i);
      body(i, ConnectSocketExchange(options[i], clock));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<SocketExchangeOptions> SameOptions(const PrivateDirectory& directory, int world_size,
                                               int64_t deadline_ns = kDeadlineNs) {
  std::vector<SocketExchangeOptions> options;
  for (int rank = 0; rank < world_size; ++rank) {
    options.push_back(OptionsForTest(directory, rank, world_size, deadline_ns));
    // Sanitizers on few cores are slow; nobody stops in these tests.
    options.back().heartbeat_timeout_ns = kDeadlineNs;
  }
  return options;
}

TEST(SocketExchange, OneRankAlone) {
  const PrivateDirectory directory;
  RunRanks(SameOptions(directory, 1), [](size_t, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    const auto step = (*exchange)->Step("s", "record", 5, NowNs() + kDeadlineNs);
    ASSERT_TRUE(step.has_value()) << step.error().ToText();
    EXPECT_THAT(step->records, ElementsAre("record"));
    EXPECT_EQ(step->start_elapsed_ns, step->elapsed_ns + 5);
  });
  EXPECT_NE(access(directory.socket_path().c_str(), F_OK), 0) << "the socket was left behind";
}

// The clocks of these ranks are one, so that every estimate of the job's begin has the same truth.
TEST(SocketExchange, TheJobsBeginIsKnownToHalfAStep) {
  const PrivateDirectory directory;
  constexpr size_t kRanks = 4;
  std::vector<int64_t> begins_ns(kRanks);
  std::vector<int64_t> shortest_ns(kRanks, INT64_MAX);
  RunRanks(SameOptions(directory, kRanks), [&](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    for (int i = 0; i < 200; ++i) {
      const int64_t began_ns = NowNs();
      const auto step = (*exchange)->Step(fmt::format("{}", i), "", 0, began_ns + kDeadlineNs);
      ASSERT_TRUE(step.has_value()) << step.error().ToText();
      shortest_ns[rank] = std::min(shortest_ns[rank], NowNs() - began_ns);
      begins_ns[rank] = step->job_begin_ns;
    }
  });
  for (size_t rank = 1; rank < kRanks; ++rank) {
    // The last estimate may be up to a second older than the shortest step.
    EXPECT_LE(std::abs(begins_ns[rank] - begins_ns[0]),
              (shortest_ns[rank] + shortest_ns[0]) / 2 + 100'000);
  }
}

// Two ranks fail at steps of different names; the third has no call open, and makes none.
TEST(SocketExchange, AFailureIsHeardBetweenCalls) {
  const PrivateDirectory directory;
  std::vector<SocketExchangeOptions> options = SameOptions(directory, 3);
  std::promise<Error> heard;
  options[2].on_loss = [&heard, is_first = true](const Error& error) mutable {
    if (std::exchange(is_first, false)) heard.set_value(error);
  };
  const std::shared_future<Error> failure = heard.get_future().share();
  RunRanks(options, [&](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    const auto all = (*exchange)->Step("all", "", 0, NowNs() + kDeadlineNs);
    ASSERT_TRUE(all.has_value()) << all.error().ToText();
    if (rank < 2) {
      const auto step = (*exchange)->Step(rank == 0 ? "a" : "b", "", 0, NowNs() + kDeadlineNs);
      ASSERT_FALSE(step.has_value());
      // It stays until the other has heard of it by the frame, not by the end of the connection.
      EXPECT_EQ(failure.wait_for(std::chrono::nanoseconds(kDeadlineNs)), std::future_status::ready);
      return;
    }
    ASSERT_EQ(failure.wait_for(std::chrono::nanoseconds(kDeadlineNs)), std::future_status::ready);
    const auto late = (*exchange)->Step("a", "", 0, NowNs() + kDeadlineNs);
    ASSERT_FALSE(late.has_value());
    EXPECT_EQ(late.error().code, ErrorCode::kRankLost);
  });
  EXPECT_EQ(failure.get().code, ErrorCode::kRankLost);
}

TEST(SocketExchange, EightRanksExchangeRecordsOfEverySize) {
  const PrivateDirectory directory;
  RunRanks(SameOptions(directory, 8), [](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{65535},
                                 RankExchange::kRecordBytesMax}) {
      const std::string mine(bytes, static_cast<char>('a' + rank));
      const auto step = (*exchange)->Step(fmt::format("{}", bytes), mine, 0, NowNs() + kDeadlineNs);
      ASSERT_TRUE(step.has_value()) << step.error().ToText();
      ASSERT_EQ(step->records.size(), 8u);
      for (size_t other = 0; other < 8; ++other) {
        ASSERT_EQ(step->records[other], std::string(bytes, static_cast<char>('a' + other)));
      }
    }
  });
}

TEST(SocketExchange, LongestProposalCrosses) {
  const PrivateDirectory directory;
  std::string table(RankExchange::kProposalBytesMax, '\0');
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<char>(i * 31 % 251);
  RunRanks(SameOptions(directory, 3), [&](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    const auto bytes = (*exchange)->Broadcast(rank == 0 ? table : "", NowNs() + kDeadlineNs);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().ToText();
    EXPECT_TRUE(*bytes == table);
    const auto agreed = (*exchange)->Agree(
        rank == 0 ? table : "", [&](std::string_view proposal) { return proposal == table; },
        NowNs() + kDeadlineNs);
    ASSERT_TRUE(agreed.has_value()) << agreed.error().ToText();
    EXPECT_EQ(*agreed, AgreementOutcome::kCommitted);
    const auto too_long = (*exchange)->Broadcast(table + "x", NowNs() + kDeadlineNs);
    EXPECT_EQ(too_long.error().code, ErrorCode::kUsage);
  });
}

TEST(SocketExchange, StoreServesSeveralThreadsOfARankWhileACallWaits) {
  const PrivateDirectory directory;
  RunRanks(SameOptions(directory, 2), [](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    if (rank == 1) {
      // Rank 0 waits in the step meanwhile, and its other threads for these keys.
      for (int key = 0; key < 4; ++key) {
        ASSERT_TRUE((*exchange)->StoreGet(fmt::format("ready {}", key), NowNs() + kDeadlineNs));
        ASSERT_TRUE((*exchange)->StorePut(fmt::format("key {}", key), fmt::format("{}", key * 7)));
      }
      ASSERT_TRUE((*exchange)->StoreGet("done", NowNs() + kDeadlineNs).has_value());
      ASSERT_TRUE((*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs).has_value());
      return;
    }
    std::vector<std::thread> threads;
    std::mutex mutex;
    int read = 0;
    for (int key = 0; key < 4; ++key) {
      threads.emplace_back([&, key] {
        ASSERT_TRUE((*exchange)->StorePut(fmt::format("ready {}", key), "").has_value());
        const auto value = (*exchange)->StoreGet(fmt::format("key {}", key), NowNs() + kDeadlineNs);
        ASSERT_TRUE(value.has_value()) << value.error().ToText();
        EXPECT_EQ(*value, fmt::format("{}", key * 7));
        const std::lock_guard lock(mutex);
        if (++read == 4) {
          ASSERT_TRUE((*exchange)->StorePut("done", "").has_value());
        }
      });
    }
    const auto step = (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs);
    EXPECT_TRUE(step.has_value()) << step.error().ToText();
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE((*exchange)->StoreDelete("key 1").has_value());
    const auto gone = (*exchange)->StoreGet("key 1", NowNs());
    EXPECT_EQ(gone.error().code, ErrorCode::kDeadline);
    EXPECT_EQ(*(*exchange)->StoreGet("key 2", NowNs()), "14");
  });
}

// ---- What may not join ----

void ExpectAllNameRankOne(std::vector<SocketExchangeOptions> options, const std::string& field,
                          const std::string& theirs, const std::string& ours) {
  RunRanks(options, [&](size_t rank, Exchange exchange) {
    ASSERT_FALSE(exchange.has_value()) << rank;
    const Error& error = exchange.error();
    EXPECT_EQ(error.code, ErrorCode::kRankLost);
    EXPECT_THAT(error.ranks, ElementsAre(1)) << error.ToText();
    EXPECT_THAT(error.what,
                AllOf(HasSubstr("rank 1"), HasSubstr(field), HasSubstr(theirs), HasSubstr(ours)));
    EXPECT_FALSE(error.next_step.empty());
  });
}

TEST(SocketExchange, OtherWorldSizeIsNamedOnAllRanks) {
  const PrivateDirectory directory;
  auto options = SameOptions(directory, 3, 5 * kSecondNs);
  options[1].world_size = 4;
  ExpectAllNameRankOne(options, "world size", "4", "3");
}

TEST(SocketExchange, OtherCodeVersionIsNamedOnAllRanks) {
  const PrivateDirectory directory;
  auto options = SameOptions(directory, 3, 5 * kSecondNs);
  options[1].code_version = "2.0";
  ExpectAllNameRankOne(options, "code version", "'2.0'", "'1.0'");
}

TEST(SocketExchange, RankThatComesAfterTheFailureIsToldOfItToo) {
  const PrivateDirectory directory;
  auto options = SameOptions(directory, 3);
  options[1].code_version = "2.0";
  std::promise<void> rank_one_failed;
  RunRanks(
      options,
      [&](size_t rank, Exchange exchange) {
        ASSERT_FALSE(exchange.has_value());
        EXPECT_THAT(exchange.error().ranks, ElementsAre(1)) << exchange.error().ToText();
        if (rank == 1) rank_one_failed.set_value();
      },
      [&](size_t rank) {
        if (rank == 2) rank_one_failed.get_future().wait();
      });
}

// The stranger comes while rank 0 waits for rank 1, which comes after it was declined.
void ExpectDeclinedAlone(const std::function<void(SocketExchangeOptions&)>& change,
                         const std::string& what) {
  const PrivateDirectory directory;
  auto options = SameOptions(directory, 2);
  options.push_back(options[1]);
  change(options[2]);
  std::promise<void> declined;
  RunRanks(
      options,
      [&](size_t i, Exchange exchange) {
        if (i == 2) {
          EXPECT_THAT(exchange ? "it has joined" : exchange.error().what, HasSubstr(what));
          declined.set_value();
          return;
        }
        ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
        const auto step = (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs);
        EXPECT_TRUE(step.has_value()) << step.error().ToText();
      },
      [&](size_t i) {
        if (i == 1) declined.get_future().wait();
      });
}

TEST(SocketExchange, ProcessOfAnotherJobIsDeclinedAndTheJobGoesOn) {
  ExpectDeclinedAlone([](SocketExchangeOptions& stranger) { stranger.job_id = "other"; },
                      "rank 1 has job id 'other', rank 0 has 'test'");
}

TEST(SocketExchange, RankThatTheJobDoesNotHaveIsDeclinedAndTheJobGoesOn) {
  ExpectDeclinedAlone([](SocketExchangeOptions& stranger) { stranger.rank = 7; },
                      "rank 7 is outside of world size 2");
}

TEST(SocketExchange, SecondProcessOfARankIsDeclinedAndTheJobGoesOn) {
  const PrivateDirectory directory;
  const auto options = SameOptions(directory, 2);
  RunRanks(options, [&](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    if (rank == 1) {
      const MonotonicClock clock;
      const Exchange second = ConnectSocketExchange(options[1], clock);
      ASSERT_FALSE(second.has_value());
      EXPECT_THAT(second.error().what, HasSubstr("rank 1 has joined already"));
    }
    const auto step = (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs);
    EXPECT_TRUE(step.has_value()) << step.error().ToText();
  });
}

// Ten seconds pass between two looks at it.
class FastClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_ += 10 * kSecondNs; }

 private:
  mutable std::atomic<int64_t> now_ns_{0};
};

TEST(SocketExchange, ARankWithoutRankZeroNamesWhatMadeItARank) {
  const PrivateDirectory directory;
  const FastClock clock;
  Log log;
  SocketExchangeOptions options = OptionsForTest(directory, 1, 3, 0);
  options.deadline_ns = 60 * kSecondNs;
  options.log = log.sink();
  options.is_default_path = true;
  options.missing_ranks_hint = "RANK made it one";
  const Exchange exchange = ConnectSocketExchange(options, clock);
  ASSERT_FALSE(exchange.has_value());
  EXPECT_EQ(exchange.error().code, ErrorCode::kRankLost);
  EXPECT_THAT(exchange.error().ToText(),
              AllOf(HasSubstr("rank 1 found nobody at the socket of rank 0 for 50.0 s"),
                    HasSubstr("start all ranks together with one launcher; RANK made it one"),
                    ::testing::Not(HasSubstr(directory.path()))));
  // It begins at 10 s and looks at 20 s again.
  EXPECT_THAT(
      log.lines(),
      ElementsAre("waiting for rank 0, which has not joined the job yet, for at most 40.0 s "
                  "more; RANK made it one"));
  // Without a hint another process watches over the ranks; a path that was given is named.
  options.deadline_ns = clock.now_ns() + 60 * kSecondNs;
  options.is_default_path = false;
  options.missing_ranks_hint = "";
  const Exchange other = ConnectSocketExchange(options, clock);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().ToText(), HasSubstr(directory.socket_path()));
  EXPECT_EQ(log.lines().size(), 1u);
}

// The socket of rank 0 is this process's, which runs and does not answer.
TEST(SocketExchange, ARankZeroThatIsSilentAndRunsIsNotCalledStopped) {
  const PrivateDirectory directory;
  const MonotonicClock clock;
  const Result<HomeFd> listener =
      ListenAt(directory.socket_path(), {}, clock, NowNs() + kDeadlineNs);
  ASSERT_TRUE(listener.has_value()) << listener.error().ToText();
  const Exchange exchange =
      ConnectSocketExchange(OptionsForTest(directory, 1, 1024, kDeadlineNs), clock);
  ASSERT_FALSE(exchange.has_value());
  EXPECT_THAT(exchange.error().ToText(),
              AllOf(HasSubstr("from rank 0 (the coordinator) for "), HasSubstr("is alive (state "),
                    HasSubstr("overloaded: 1024 ranks on "), HasSubstr("start fewer ranks"),
                    ::testing::Not(HasSubstr("stopped"))));
}

TEST(SocketExchange, BadOptionsAreRefusedBeforeAnythingIsOpened) {
  const PrivateDirectory directory;
  const MonotonicClock clock;
  const auto good = OptionsForTest(directory, 0, 1, kSecondNs);
  const auto code_of = [&](const std::function<void(SocketExchangeOptions&)>& change) {
    SocketExchangeOptions options = good;
    change(options);
    const Exchange exchange = ConnectSocketExchange(options, clock);
    return exchange.has_value() ? ErrorCode::kInternal : exchange.error().code;
  };
  EXPECT_EQ(code_of([](auto& o) { o.world_size = 0; }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.world_size = 1025; }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.rank = -1; }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.job_id = std::string(256, 'j'); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.heartbeat_interval_ns = 0; }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.heartbeat_timeout_ns = o.heartbeat_interval_ns; }),
            ErrorCode::kUsage);
  EXPECT_EQ(code_of([](auto& o) { o.socket_path = "/" + std::string(107, 'p'); }),
            ErrorCode::kUsage);
}

// ---- Bytes that are no frames ----

// True when the other end closes the connection within `wait_ms`.
bool IsClosed(int fd, int wait_ms) {
  std::array<char, 4096> buffer;
  pollfd polled = {fd, POLLIN, 0};
  while (poll(&polled, 1, wait_ms) == 1) {
    const ssize_t bytes = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET)) return true;
  }
  return false;
}

std::string Prefixed(uint32_t length, const std::string& body) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
  return bytes + body;
}

// A frame with a few bits changed, a cut one, random bytes, or a frame that is out of place.
std::string Garbage(std::mt19937_64& random) {
  wire::Frame frame;
  switch (random() % 5) {
    case 0:
      *frame.mutable_hello() = MakeHello({2, "test", "1.0"}, static_cast<int>(random() % 9) - 3, 0);
      frame.mutable_hello()->set_protocol(static_cast<uint32_t>(random() % 3));
      break;
    case 1:
      frame.mutable_arrive()->set_call(random());
      break;
    case 2:
      frame.mutable_release()->add_records(std::string(random() % 5000, 'x'));
      break;
    case 3:
      frame.mutable_give_up()->mutable_failure()->set_what("garbage");
      break;
    default:
      frame.mutable_bye();
  }
  std::string bytes = EncodeFrame(frame);
  for (uint64_t flips = random() % 4; flips > 0; --flips) {
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
  }
  if (random() % 4 == 0) bytes.resize(random() % bytes.size());
  if (random() % 4 == 0) bytes = Prefixed(static_cast<uint32_t>(random()), bytes);
  return bytes;
}

TEST(Garbage, CoordinatorSurvivesRandomFramesAndTheJobGoesOn) {
  const PrivateDirectory directory;
  const auto options = SameOptions(directory, 2);
  RunRanks(options, [&](size_t rank, Exchange exchange) {
    ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
    std::mt19937_64 random(20'260'101 + rank);
    for (int round = 0; round < 300; ++round) {
      const Result<HomeFd> fd =
          ConnectTo(directory.socket_path(), 1, MonotonicClock(), NowNs() + kDeadlineNs);
      ASSERT_TRUE(fd.has_value()) << fd.error().ToText();
      const std::string bytes = Garbage(random);
      send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (round % 30 != 0) continue;
      const auto step = (*exchange)->Step(fmt::format("{}", round), "", 0, NowNs() + kDeadlineNs);
      ASSERT_TRUE(step.has_value()) << step.error().ToText();
    }
  });
}

TEST(Garbage, StrangerMaySayNothingButASmallHello) {
  const PrivateDirectory directory;
  const MonotonicClock clock;
  Log log;
  auto options = OptionsForTest(directory, 0, 1, kDeadlineNs);
  options.log = log.sink();
  const Exchange exchange = ConnectSocketExchange(options, clock);
  ASSERT_TRUE(exchange.has_value()) << exchange.error().ToText();
  wire::Frame heartbeat;
  heartbeat.mutable_heartbeat();
  for (const std::string& bytes :
       {Prefixed(4097, ""), Prefixed(0, ""), Prefixed(3, "\xff\xff\xff"), EncodeFrame(heartbeat)}) {
    const Result<HomeFd> fd = ConnectTo(directory.socket_path(), 1, clock, NowNs() + kDeadlineNs);
    ASSERT_TRUE(fd.has_value());
    ASSERT_GT(send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(IsClosed(fd->get(), 10'000));
  }
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("4097 bytes came, at most 4096"),
                                       HasSubstr("0 bytes came that are no frame"),
                                       HasSubstr("3 bytes came that are no frame"),
                                       HasSubstr("the first frame is no HELLO")));
  // The longest HELLO that is allowed is read on: no answer until its bytes have come.
  const Result<HomeFd> patient =
      ConnectTo(directory.socket_path(), 1, clock, NowNs() + kDeadlineNs);
  const std::string prefix = Prefixed(4096, "");
  ASSERT_GT(send(patient->get(), prefix.data(), prefix.size(), MSG_NOSIGNAL), 0);
  EXPECT_FALSE(IsClosed(patient->get(), 100));
  EXPECT_TRUE((*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs).has_value());
}

// Its answers pile up at the coordinator, but not without end.
TEST(Garbage, RankThatAsksAndNeverReadsIsNamed) {
  const PrivateDirectory directory;
  const auto options = SameOptions(directory, 2);
  const MonotonicClock clock;
  std::promise<void> named;
  std::thread stranger([&] {
    const Result<HomeFd> fd = ConnectTo(directory.socket_path(), 1, clock, NowNs() + kDeadlineNs);
    ASSERT_TRUE(fd.has_value());
    wire::Frame hello;
    *hello.mutable_hello() = MakeHello({2, "test", "1.0"}, 1, NowNs() + kDeadlineNs);
    wire::Frame request;
    request.mutable_store_request()->set_operation(wire::STORE_PUT);
    request.mutable_store_request()->set_key("key");
    request.mutable_store_request()->set_value(std::string(RankExchange::kRecordBytesMax, 'v'));
    std::string bytes = EncodeFrame(hello) + EncodeFrame(request);
    request.mutable_store_request()->set_operation(wire::STORE_GET);
    request.mutable_store_request()->clear_value();
    const uint64_t gets = OutboxBytesMax(2) / RankExchange::kRecordBytesMax + 64;
    for (uint64_t i = 0; i < gets; ++i) {
      request.mutable_store_request()->set_request(i);
      bytes += EncodeFrame(request);
    }
    for (size_t sent = 0; sent < bytes.size();) {
      pollfd polled = {fd->get(), POLLOUT, 0};
      ASSERT_EQ(poll(&polled, 1, 20'000), 1);
      const ssize_t some = send(fd->get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      ASSERT_GT(some, 0);
      sent += static_cast<size_t>(some);
    }
    named.get_future().wait();  // its connection does not end before
  });
  const Exchange exchange = ConnectSocketExchange(options[0], clock);
  const Result<StepResult> step =
      exchange ? (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs) : Propagate(exchange);
  named.set_value();
  stranger.join();
  ASSERT_FALSE(step.has_value());
  EXPECT_THAT(step.error().ranks, ElementsAre(1));
  EXPECT_THAT(step.error().what, HasSubstr("reads no answer"));
}

TEST(Garbage, RankThatBreaksTheProtocolIsNamed) {
  const PrivateDirectory directory;
  const auto options = SameOptions(directory, 2);
  const MonotonicClock clock;
  std::thread stranger([&] {
    const Result<HomeFd> fd = ConnectTo(directory.socket_path(), 1, clock, NowNs() + kDeadlineNs);
    ASSERT_TRUE(fd.has_value());
    wire::Frame hello;
    *hello.mutable_hello() = MakeHello({2, "test", "1.0"}, 1, NowNs() + kDeadlineNs);
    const std::string bytes = EncodeFrame(hello) + Prefixed(uint32_t{1} << 30, "");
    ASSERT_GT(send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(IsClosed(fd->get(), 10'000));
  });
  const Exchange exchange = ConnectSocketExchange(options[0], clock);
  if (exchange.has_value()) {
    const auto step = (*exchange)->Step("s", "", 0, NowNs() + kDeadlineNs);
    ASSERT_FALSE(step.has_value());
    EXPECT_THAT(step.error().ranks, ElementsAre(1));
    EXPECT_THAT(step.error().what, HasSubstr("rank 1 broke the protocol"));
  } else {
    EXPECT_THAT(exchange.error().ranks, ElementsAre(1));
  }
  stranger.join();
}

}  // namespace
}  // namespace cotune::sync
