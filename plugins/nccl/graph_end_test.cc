// A group ends while a CUDA graph with its calls lives: NCCL frees no communicator before the
// last graph that has captured a call of it is destroyed. Each case has a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kPatience = std::chrono::seconds(60);

cotune_problem_t Sum(int world_size) {
  return AbiProblem(COTUNE_ALL_REDUCE, kAbiF32, COTUNE_SUM, 100, world_size);
}

// The libraries, and a graph that lives until DestroyGraph.
struct GraphForTest {
  GraphForTest() : state(FakeRank::LoadLibraries()), cuda(LoadFakeCuda()) {
    state.is_capturing = &cuda.is_capturing;
  }
  void BeginCapture() { cuda.is_capturing = true; }
  void EndCapture() {
    cuda.is_capturing = false;
    const std::lock_guard lock(state.mutex);
    state.graphs_live = true;
  }
  void Capture(FakeRank& rank) {
    BeginCapture();
    EXPECT_EQ(rank.Run(Sum(1), "auto"), "");
    EndCapture();
  }
  // Aborts the rank's group while a call of it does not return from NCCL.
  void AbortInNccl(FakeRank& rank) {
    cotune_plan_t* plan = rank.Prepare(Sum(1), "auto");
    {
      const std::lock_guard lock(state.mutex);
      state.collectives_hang = true;
    }
    std::thread caller([&] { EXPECT_EQ(rank.Launch(plan), COTUNE_ABORTED); });
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.calls_inside == 1; });
    }
    rank.api().group_abort(rank.group());
    caller.join();
    rank.api().plan_destroy(plan);
  }
  void DestroyGraph() {
    cuda.DestroyGraphs();
    const std::lock_guard lock(state.mutex);
    state.graphs_live = false;
    state.changed.notify_all();
  }
  bool AwaitCommunicators(int count) {
    std::unique_lock lock(state.mutex);
    return state.changed.wait_for(lock, kPatience, [&] { return state.communicators == count; });
  }
  int Communicators() {
    const std::lock_guard lock(state.mutex);
    return state.communicators;
  }

  // An abort that has not returned still has its thread.
  int Aborts() {
    const std::lock_guard lock(state.mutex);
    return state.aborts;
  }

  FakeNcclState& state;
  FakeCudaState& cuda;
  JobForTest job;
};

TEST(GraphEndDeathTest, AllRanksGoWhileAGraphLives) {
  IN_CHILD({
    GraphForTest graph;
    graph.BeginCapture();
    std::vector<std::unique_ptr<FakeRank>> ranks(2);
    RunRanks(2, [&](int r) {
      const size_t i = static_cast<size_t>(r);
      ranks[i] = std::make_unique<FakeRank>(graph.job, "g", r, 2);
      ASSERT_EQ(ranks[i]->status(), COTUNE_OK) << ranks[i]->message();
      EXPECT_EQ(ranks[i]->Run(Sum(2), "auto"), "");
    });
    graph.EndCapture();
    RunRanks(2, [&](int r) { ranks[static_cast<size_t>(r)].reset(); });
    EXPECT_EQ(graph.state.finalizes, 2) << "ranks still wait for each other";
    EXPECT_EQ(graph.Communicators(), 2) << "a replay reaches those with the calls";
    EXPECT_THAT(graph.job.warnings(),
                AllOf(SizeIs(2), Each(AllOf(HasSubstr("group 'g' ended while a CUDA graph"),
                                            HasSubstr("with wrong results")))));
    graph.DestroyGraph();
    EXPECT_TRUE(graph.AwaitCommunicators(0)) << "freed with the graph";
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

TEST(GraphEndDeathTest, ARankGoesAloneWhileAGraphLives) {
  IN_CHILD({
    GraphForTest graph;
    graph.BeginCapture();
    std::vector<FakeRank*> ranks(2);
    RunRanks(2, [&](int r) {
      FakeRank*& rank = ranks[static_cast<size_t>(r)];
      rank = new FakeRank(graph.job, "g", r, 2);
      EXPECT_EQ(rank->Run(Sum(2), "auto"), "");
    });
    graph.EndCapture();
    // Rank 1 has left without a word.
    delete ranks[0];
    EXPECT_EQ(graph.state.finalizes, 1);
    EXPECT_THAT(graph.job.warnings(), ElementsAre(HasSubstr("while a CUDA graph")));
    EXPECT_EQ(graph.Communicators(), 3) << "two of the rank that left";
    graph.DestroyGraph();
    EXPECT_TRUE(graph.AwaitCommunicators(2));
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

TEST(GraphEndDeathTest, AGraphThatWasDestroyedBeforeLeavesNothing) {
  IN_CHILD({
    GraphForTest graph;
    {
      FakeRank rank(graph.job, "g", 0, 1);
      graph.Capture(rank);
      graph.DestroyGraph();
    }
    EXPECT_EQ(graph.Communicators(), 0);
    EXPECT_THAT(graph.job.warnings(), IsEmpty());
    EXPECT_EQ(graph.cuda.objects, 0);
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

TEST(GraphEndDeathTest, AnAbortReturnsWhileAGraphLivesAndItsReplayEnds) {
  IN_CHILD({
    GraphForTest graph;
    {
      FakeRank rank(graph.job, "g", 0, 1);
      graph.Capture(rank);
      graph.state.kernels = &graph.cuda.is_busy;
      graph.cuda.is_busy = true;
      std::thread replay([&] { graph.cuda.is_busy.wait(true); });
      rank.api().group_abort(rank.group());
      replay.join();
      EXPECT_EQ(rank.Health(), COTUNE_ABORTED);
      EXPECT_EQ(graph.Communicators(), 1);
    }
    EXPECT_THAT(graph.job.warnings(), SizeIs(1));
    graph.DestroyGraph();
    EXPECT_TRUE(graph.AwaitCommunicators(0));
    EXPECT_EQ(graph.state.aborts, 2);
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

// A call outside of the graph is late, as if a tune measures a choice that hangs.
TEST(GraphEndDeathTest, ALateCallEndsTheGroupWhileAGraphLives) {
  IN_CHILD({
    GraphForTest graph;
    {
      FakeRank rank(graph.job, "g", 0, 1);
      graph.Capture(rank);
      cotune_plan_t* plan = rank.Prepare(Sum(1), "auto");
      graph.state.kernels = &graph.cuda.is_busy;
      graph.cuda.is_busy = true;
      EXPECT_EQ(rank.Launch(plan, MonotonicNs() + kSecondNs / 50), COTUNE_OK);
      graph.cuda.is_busy.wait(true);
      EXPECT_EQ(rank.Health(), COTUNE_DEADLINE_EXCEEDED);
      rank.api().plan_destroy(plan);
    }
    graph.DestroyGraph();
    EXPECT_TRUE(graph.AwaitCommunicators(0));
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

// NCCL frees a revoked communicator at once, so none that a graph reaches is revoked.
TEST(GraphEndDeathTest, ACallThatIsInNcclEndsAndTheGraphKeepsItsMemory) {
  IN_CHILD({
    GraphForTest graph;
    {
      FakeRank rank(graph.job, "g", 0, 1);
      graph.Capture(rank);
      graph.AbortInNccl(rank);
      EXPECT_EQ(graph.state.revokes, 0);
      EXPECT_EQ(graph.Communicators(), 1);
    }
    graph.DestroyGraph();
    EXPECT_TRUE(graph.AwaitCommunicators(0));
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

// With no graph left the call is ended at once, as in a group that was never captured.
TEST(GraphEndDeathTest, ACallThatIsInNcclIsRevokedAfterTheLastGraph) {
  IN_CHILD({
    GraphForTest graph;
    {
      FakeRank rank(graph.job, "g", 0, 1);
      graph.Capture(rank);
      graph.DestroyGraph();
      graph.AbortInNccl(rank);
      EXPECT_GT(graph.state.revokes, 0);
    }
    EXPECT_TRUE(graph.AwaitCommunicators(0));
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

TEST(GraphEndDeathTest, AnAbortThatNeverReturnsHoldsUpNobody) {
  IN_CHILD({
    GraphForTest graph;
    {
      const std::lock_guard lock(graph.state.mutex);
      graph.state.aborts_hang = true;
    }
    {
      FakeRank rank(graph.job, "g", 0, 1);
      EXPECT_EQ(rank.Run(Sum(1), "auto"), "");
    }
    EXPECT_EQ(graph.Aborts(), 1);
    EXPECT_THAT(graph.job.warnings(), ElementsAre(HasSubstr("NCCL has not freed")));
    // Another group comes and is aborted in the same process.
    {
      FakeRank rank(graph.job, "h", 0, 1);
      EXPECT_EQ(rank.Run(Sum(1), "auto"), "");
      rank.api().group_abort(rank.group());
      EXPECT_EQ(rank.Health(), COTUNE_ABORTED);
    }
    EXPECT_THAT(graph.job.warnings(), SizeIs(2));
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

// The background work of a split writes its result until the parent's abort has returned.
TEST(GraphEndDeathTest, AGroupThatIsNotMadeInTimeReturnsEvenIfItsAbortDoesNot) {
  IN_CHILD({
    GraphForTest graph;
    graph.state.split_hangs = true;
    graph.state.aborts_hang = true;
    {
      FakeRank rank(graph.job, "g", 0, 1, MonotonicNs() + kSecondNs / 10);
      EXPECT_EQ(rank.status(), COTUNE_DEADLINE_EXCEEDED) << rank.message();
    }
    {
      const std::lock_guard lock(graph.state.mutex);
      graph.state.aborts_hang = false;
      graph.state.changed.notify_all();
    }
    EXPECT_TRUE(graph.AwaitCommunicators(1)) << "the half-made one";
    EXPECT_THAT(graph.state.misuse, IsEmpty());
  });
}

}  // namespace
}  // namespace cotune::nccl
