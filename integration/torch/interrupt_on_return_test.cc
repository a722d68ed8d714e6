#include "integration/torch/interrupt_on_return.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace cotune::torch_operators {
namespace {

int interrupts = 0;
void Interrupt() { ++interrupts; }

class InterruptOnReturnTest : public ::testing::Test {
 protected:
  InterruptOnReturnTest() { interrupts = 0; }
};

TEST_F(InterruptOnReturnTest, OutsideOfAnOperatorItIsRefused) {
  EXPECT_EQ(cotune_torch_interrupt_on_return(&Interrupt), 0);
  { const OperatorCall call; }
  EXPECT_EQ(interrupts, 0);
}

TEST_F(InterruptOnReturnTest, ItComesOnceAsTheOperatorReturns) {
  {
    const OperatorCall call;
    EXPECT_EQ(cotune_torch_interrupt_on_return(&Interrupt), 1);
    EXPECT_EQ(cotune_torch_interrupt_on_return(&Interrupt), 1);
    EXPECT_EQ(interrupts, 0);
  }
  EXPECT_EQ(interrupts, 1);
  { const OperatorCall call; }
  EXPECT_EQ(interrupts, 1);
}

TEST_F(InterruptOnReturnTest, ItComesWithAnException) {
  const auto fails = [] {
    const OperatorCall call;
    InterruptOnReturn(&Interrupt);
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_EQ(interrupts, 1);
}

TEST_F(InterruptOnReturnTest, AnOperatorWithinAnotherOneLeavesItToThat) {
  {
    const OperatorCall outer;
    {
      const OperatorCall inner;
      InterruptOnReturn(&Interrupt);
    }
    EXPECT_EQ(interrupts, 0);
  }
  EXPECT_EQ(interrupts, 1);
}

TEST_F(InterruptOnReturnTest, AnotherThreadIsInNoOperator) {
  const OperatorCall call;
  std::thread([] { EXPECT_EQ(cotune_torch_interrupt_on_return(&Interrupt), 0); }).join();
}

}  // namespace
}  // namespace cotune::torch_operators
