// Uses by graphs end when the last graph does, with a driver that stands in for a GPU's.
#include "gpu/driver/graph_uses.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "gpu/driver/testing/graph_driver.h"

namespace cotune::gpu {
namespace {

class GraphUsesTest : public ::testing::Test {
 protected:
  GraphUsesTest() {
    const std::string path = std::filesystem::absolute("gpu/driver/graph_libcuda.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    state_ = reinterpret_cast<GraphDriverState* (*)()>(dlsym(library, "graph_driver_state"))();
    driver_ = *CudaDriver::Open(path.c_str());
  }
  const CudaDriver& driver() const { return *driver_; }
  // A graph of work that `uses` are added for.
  CuGraph Capture(std::initializer_list<GraphUses*> uses) {
    driver()->StreamBeginCapture(nullptr, kCuCaptureThreadLocal);
    for (GraphUses* each : uses) each->Add(driver(), nullptr);
    CuGraph graph = nullptr;
    driver()->StreamEndCapture(nullptr, &graph);
    return graph;
  }

  GraphDriverState* state_ = nullptr;
  std::optional<CudaDriver> driver_;
};

TEST_F(GraphUsesTest, AUseEndsWithTheLastGraph) {
  GraphUses uses;
  uses.Add(driver(), nullptr);
  EXPECT_FALSE(uses.IsAny()) << "nothing is captured";
  CuGraph const graph = Capture({&uses});
  EXPECT_TRUE(uses.IsAny());
  CuGraphExec exec = nullptr;
  driver()->GraphInstantiate(&exec, graph, 0);
  driver()->GraphDestroy(graph);
  EXPECT_TRUE(uses.IsAny()) << "it was instantiated";
  CuGraph const second = Capture({&uses});
  driver()->GraphExecDestroy(exec);
  EXPECT_TRUE(uses.IsAny());
  driver()->GraphDestroy(second);
  EXPECT_FALSE(uses.IsAny());
  EXPECT_EQ(state_->user_objects, 0);
}

TEST_F(GraphUsesTest, ManyCallsOfOneCaptureMakeOneObject) {
  GraphUses uses;
  CuGraph const graph = Capture({&uses, &uses, &uses});
  EXPECT_EQ(state_->user_objects, 1);
  driver()->GraphDestroy(graph);
  EXPECT_FALSE(uses.IsAny());
}

TEST_F(GraphUsesTest, AGraphMayOutliveTheUses) {
  auto uses = std::make_unique<GraphUses>();
  CuGraph const graph = Capture({uses.get()});
  uses.reset();
  driver()->GraphDestroy(graph);
  EXPECT_EQ(state_->user_objects, 0);
}

TEST_F(GraphUsesTest, AUseThatTheDriverDoesNotCountNeverEnds) {
  GraphUses uses;
  state_->refuses_user_objects = true;
  CuGraph const graph = Capture({&uses});
  state_->refuses_user_objects = false;
  driver()->GraphDestroy(graph);
  EXPECT_TRUE(uses.IsAny());
}

}  // namespace
}  // namespace cotune::gpu
