// The operands of a program on one rank: guards around each, poison in the outputs, at any offset.
#ifndef COTUNE_TESTS_GPU_PROGRAM_BUFFERS_H_
#define COTUNE_TESTS_GPU_PROGRAM_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/problem/program.h"
#include "tests/gpu/program_values.h"

namespace cotune::gputest {

// One thread. Device and program outlive it.
class ProgramBuffers {
 public:
  // offset: of every operand, in elements from an address that is a multiple of 256 bytes.
  // kEnvironment when there is no memory left.
  static Result<std::unique_ptr<ProgramBuffers>> Allocate(Device& device, const Program& program,
                                                          uint64_t rows, uint64_t offset);

  std::span<const void* const> inputs() const { return inputs_; }
  std::span<void* const> outputs() const { return outputs_; }

  // Writes the inputs, and 0xFF into every byte of the outputs.
  Status Fill(const ProgramValues& values);
  // The bytes of each output.
  Result<std::vector<std::vector<std::byte>>> Outputs();
  // "" where the outputs are right, and guards and inputs that no output overwrites are as they
  // were; else what is wrong.
  Result<std::string> WhatIsWrong(const ProgramValues& values);

 private:
  struct Operand {
    std::unique_ptr<DeviceBuffer> buffer;
    uint64_t begin = 0;  // bytes from the start of the buffer
    uint64_t bytes = 0;
    std::vector<std::byte> image{};  // as Fill wrote it, with guards
  };

  explicit ProgramBuffers(Device& device, const Program& program)
      : device_(device), program_(program) {}
  Result<void*> Add(std::vector<Operand>& to, ValueIndex value, uint64_t rows, uint64_t offset);
  Status Write(Operand& operand, std::span<const std::byte> content);
  // The bytes of the operand; says in `wrong` where a guard has changed.
  Result<std::vector<std::byte>> Read(Operand& operand, std::string& wrong);

  Device& device_;
  const Program& program_;
  std::vector<Operand> inputs_of_call_;
  std::vector<Operand> outputs_of_call_;  // without memory where one overwrites an input
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_PROGRAM_BUFFERS_H_
