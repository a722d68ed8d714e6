#include "core/benchmark/program_operands.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "core/benchmark/guarded_buffer.h"
#include "core/problem/program_data.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Images are written in pieces of about so many bytes.
constexpr uint64_t kStagedBytes = 4 << 20;

// Results with other bits than these that are right all the same are counted element by element
// each time.
constexpr size_t kImagesMax = 4;

bool OverwritesInput(const ProgramGraph& graph) {
  return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [](const ProgramOutput& output) { return output.into >= 0; });
}

uint64_t RowBytes(const ValueType& type) { return type.columns * SizeBytes(type.dtype); }

EvaluatedValue RowOf(const EvaluatedValue& value, uint64_t row) {
  EvaluatedValue one;
  one.type = value.type;
  one.rows = 1;
  const auto cut = [&](const auto& from, auto& to) {
    if (from.empty()) return;
    const auto begin = from.begin() + static_cast<int64_t>(row * value.type.columns);
    to.assign(begin, begin + static_cast<int64_t>(value.type.columns));
  };
  cut(value.floats, one.floats);
  cut(value.integers, one.integers);
  cut(value.integer_bounds, one.integer_bounds);
  return one;
}

}  // namespace

ProgramOperands::ProgramOperands(Device& device, const Program& program, const Problem& problem,
                                 int rank, SymmetricRegion* symmetric,
                                 std::shared_ptr<ReferenceResults> reference)
    : device_(device),
      program_(program),
      rank_(rank),
      symmetric_(symmetric),
      rows_(program.RowsAt(problem)),
      reference_(std::move(reference)) {
  if (reference_ == nullptr) {
    reference_ = std::make_shared<ReferenceResults>(program, rows_, rank);
  }
}

ProgramDataSet ProgramOperands::TimedDataSet() const {
  ProgramDataSet data = reference_->DataSet(0);
  data.cancels_over_ranks = true;
  return data;
}

bool ProgramOperands::IsReplicated(size_t output) const {
  return program_.graph().is_replicated(program_.graph().outputs()[output].value);
}

std::vector<std::string> ProgramOperands::ReplicatedOutputs() const {
  std::vector<std::string> names;
  const ProgramGraph& graph = program_.graph();
  for (size_t output = 0; output < graph.outputs().size(); ++output) {
    if (!IsReplicated(output)) continue;
    const int32_t into = graph.outputs()[output].into;
    const std::string name = into < 0 ? "" : graph.inputs()[static_cast<size_t>(into)].name;
    names.push_back(fmt::format("output {}{}", output + 1, name.empty() ? "" : " into " + name));
  }
  return names;
}

uint64_t ProgramOperands::EvaluatedRow(const ValueType& type, uint64_t row) const {
  return EvaluatedRowOf(program_.graph(), type, row, rows_, program_.group().world_size);
}

Result<std::unique_ptr<DeviceBuffer>> ProgramOperands::ImageOf(
    ValueIndex value, const std::function<const std::byte*(uint64_t row)>& row_at,
    ValueHash* hash) {
  Result<std::unique_ptr<DeviceBuffer>> image =
      device_.Allocate(program_.BytesOf(value, rows_) + 2 * kGuardBytes);
  if (!image) return image;
  COTUNE_RETURN_IF_ERROR(PutGuards(device_, **image));
  const uint64_t row_bytes = RowBytes(program_.graph().type(value));
  const uint64_t rows = program_.RowsOf(value, rows_);
  const uint64_t rows_at_once = std::max<uint64_t>(1, kStagedBytes / row_bytes);
  std::vector<std::byte> staged;
  for (uint64_t first = 0; first < rows; first += rows_at_once) {
    staged.resize(std::min(rows_at_once, rows - first) * row_bytes);
    for (uint64_t at = 0; at < staged.size(); at += row_bytes) {
      std::memcpy(staged.data() + at, row_at(first + at / row_bytes), row_bytes);
    }
    if (hash != nullptr) hash->Add(staged);
    const auto part = device_.Part(**image, kGuardBytes + first * row_bytes, staged.size());
    COTUNE_RETURN_IF_ERROR(device_.Write(*part, staged));
  }
  return image;
}

uint64_t ProgramOperands::CallBytes(const Program& program, const Problem& problem) {
  const uint64_t rows = program.RowsAt(problem);
  const ProgramGraph& graph = program.graph();
  uint64_t bytes = 0;
  for (ValueIndex input = 0; input < static_cast<ValueIndex>(graph.inputs().size()); ++input) {
    bytes += program.BytesOf(input, rows) + 2 * kGuardBytes;
  }
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.into < 0) bytes += program.BytesOf(output.value, rows) + 2 * kGuardBytes;
  }
  return bytes;
}

uint64_t ProgramOperands::RegionBytes(const Program& program, const Problem& problem,
                                      int32_t copies) {
  const uint64_t rows = program.RowsAt(problem);
  const ProgramGraph& graph = program.graph();
  uint64_t bytes = 0;
  const auto add = [&](ValueIndex value) {
    bytes += SymmetricRegion::BytesFor({program.BytesOf(value, rows) + 2 * kGuardBytes});
  };
  for (size_t input = 0; input < graph.inputs().size(); ++input) {
    add(static_cast<ValueIndex>(input));
  }
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.into < 0) add(output.value);
  }
  return static_cast<uint64_t>(copies) * bytes;
}

uint64_t ProgramOperands::BytesFor(const Program& program, const Problem& problem, int32_t copies) {
  // The operands, and for each kind of data one image of the inputs and some of the outputs.
  const uint64_t call_bytes = CallBytes(program, problem);
  // One more image of the inputs, for timing.
  const uint64_t timed = OverwritesInput(program.graph()) ? 1 : 0;
  return (static_cast<uint64_t>(copies) + kDataKinds * kImagesMax + timed) * call_bytes;
}

uint64_t ProgramOperands::BytesToCount(const Program& program, const Problem& problem) {
  uint64_t largest = 0;
  for (const ProgramOutput& output : program.graph().outputs()) {
    largest = std::max(largest, program.BytesOf(output.value, program.RowsAt(problem)));
  }
  return largest + 2 * kGuardBytes;
}

Result<std::unique_ptr<CellOperands>> ProgramOperands::Allocate(
    Device& device, const Program& program, const Problem& problem, int rank,
    SymmetricRegion* symmetric, std::shared_ptr<ReferenceResults> reference) {
  std::unique_ptr<ProgramOperands> made(
      new ProgramOperands(device, program, problem, rank, symmetric, std::move(reference)));
  if (symmetric != nullptr) symmetric->Reset();
  try {
    COTUNE_TRY(Copy copy, made->MakeCopy());
    made->copies_.push_back(std::move(copy));
    for (uint32_t kind = 0; kind < kDataKinds; ++kind) {
      COTUNE_TRY(Kind data, made->MakeKind(kind));
      made->kinds_[kind] = std::move(data);
    }
    if (OverwritesInput(program.graph())) {
      COTUNE_TRY(made->timed_before_, made->MakeInputs(made->TimedDataSet()));
    }
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kEnvironment, "cannot allocate host memory to make data",
                ToText(problem), "memory or its limit is used up", "start fewer ranks");
  }
  return made;
}

size_t ProgramOperands::BufferOf(size_t output) const {
  const auto& outputs = program_.graph().outputs();
  if (outputs[output].into >= 0) return static_cast<size_t>(outputs[output].into);
  size_t buffer = program_.graph().inputs().size();
  for (size_t i = 0; i < output; ++i) buffer += outputs[i].into < 0 ? 1 : 0;
  return buffer;
}

Result<ProgramOperands::Copy> ProgramOperands::MakeCopy() {
  Copy copy;
  const ProgramGraph& graph = program_.graph();
  const auto add = [&](ValueIndex value) -> Status {
    const uint64_t bytes = program_.BytesOf(value, rows_) + 2 * kGuardBytes;
    COTUNE_TRY(auto buffer,
               symmetric_ == nullptr ? device_.Allocate(bytes) : symmetric_->Take(bytes));
    copy.buffers.push_back(std::move(buffer));
    return {};
  };
  for (ValueIndex input = 0; input < static_cast<ValueIndex>(graph.inputs().size()); ++input) {
    COTUNE_RETURN_IF_ERROR(add(input));
  }
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.into >= 0) continue;
    COTUNE_RETURN_IF_ERROR(add(output.value));
  }
  const auto address = [&](size_t buffer) {
    return static_cast<std::byte*>(copy.buffers[buffer]->data()) + kGuardBytes;
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i) copy.inputs.push_back(address(i));
  for (size_t i = 0; i < graph.outputs().size(); ++i) copy.outputs.push_back(address(BufferOf(i)));
  return copy;
}

Result<ProgramOperands::Buffers> ProgramOperands::MakeInputs(const ProgramDataSet& data) {
  Buffers inputs;
  const ProgramGraph& graph = program_.graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto value = static_cast<ValueIndex>(i);
    const uint64_t row_bytes = RowBytes(graph.type(value));
    const std::vector<std::byte> period = InputPeriod(graph, i, rank_, data);
    COTUNE_TRY(auto image, ImageOf(value, [&](uint64_t row) {
                 return period.data() + row * row_bytes % period.size();
               }));
    inputs.push_back(std::move(image));
  }
  return inputs;
}

Result<ProgramOperands::Kind> ProgramOperands::MakeKind(uint32_t kind) {
  Kind data;
  const ProgramGraph& graph = program_.graph();
  COTUNE_TRY(data.before, MakeInputs(reference_->DataSet(kind)));
  COTUNE_TRY(data.expected, reference_->Of(kind));
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ValueIndex value = graph.outputs()[i].value;
    const ValueType& type = graph.type(value);
    const std::vector<std::byte> rounded = Encode(*(*data.expected)[i]);
    ValueHash hash(type.dtype);
    const auto row_at = [&](uint64_t row) {
      return rounded.data() + EvaluatedRow(type, row) * RowBytes(type);
    };
    COTUNE_TRY(auto image, ImageOf(value, row_at, IsReplicated(i) ? &hash : nullptr));
    data.right.emplace_back().push_back({std::move(image), hash.Digest()});
  }
  return data;
}

int32_t ProgramOperands::AffordableCopies(int32_t wanted) const {
  if (symmetric_ != nullptr) {
    uint64_t taken = 1;
    for (const auto& buffer : copies_[0].buffers) {
      taken += SymmetricRegion::BytesFor({buffer->bytes()});
    }
    const uint64_t more = symmetric_->left_bytes() / taken;
    return static_cast<int32_t>(std::min<uint64_t>(static_cast<uint64_t>(wanted), 1 + more));
  }
  const std::optional<uint64_t> available = device_.AvailableBytes();
  if (!available || wanted == 1) return wanted;
  uint64_t call_bytes = 1;
  for (const auto& buffer : copies_[0].buffers) call_bytes += buffer->bytes();
  const uint64_t affordable = 1 + *available / 2 / call_bytes;
  return static_cast<int32_t>(std::min<uint64_t>(static_cast<uint64_t>(wanted), affordable));
}

Status ProgramOperands::AddCopies(int32_t copies) {
  while (this->copies() < copies) {
    COTUNE_TRY(Copy copy, MakeCopy());
    if (Status filled = FillCopy(copy, timed_before()); !filled) return filled;
    copies_.push_back(std::move(copy));
  }
  return {};
}

void ProgramOperands::SetAddresses(LaunchArguments& arguments, int32_t copy) const {
  const Copy& operands = copies_[static_cast<size_t>(copy)];
  arguments.inputs = operands.inputs;
  arguments.outputs = operands.outputs;
}

Status ProgramOperands::FillCopy(const Copy& copy, const Buffers& before) {
  const size_t inputs = program_.graph().inputs().size();
  for (size_t i = 0; i < copy.buffers.size(); ++i) {
    Status filled = i < inputs ? device_.Copy(*copy.buffers[i], *before[i])
                               : PoisonBetweenGuards(device_, *copy.buffers[i]);
    if (!filled) return filled;
  }
  return {};
}

Status ProgramOperands::Fill(uint32_t salt, int32_t copies) {
  for (int32_t copy = 0; copy < copies; ++copy) {
    const Copy& operands = copies_[static_cast<size_t>(copy)];
    if (Status filled = FillCopy(operands, kinds_[salt % kDataKinds].before); !filled)
      return filled;
  }
  return {};
}

Status ProgramOperands::FillForTiming(int32_t copies) {
  if (timed_before_.empty()) return {};
  for (int32_t copy = 0; copy < copies; ++copy) {
    COTUNE_RETURN_IF_ERROR(FillCopy(copies_[static_cast<size_t>(copy)], timed_before_));
  }
  return {};
}

Result<OperandCheck> ProgramOperands::Check(uint32_t salt, int32_t copies) {
  OperandCheck all;
  for (int32_t copy = 0; copy < copies; ++copy) {
    OperandCheck check;
    Status checked;
    try {
      checked = CheckCopy(copies_[static_cast<size_t>(copy)], salt % kDataKinds, check);
    } catch (const std::bad_alloc&) {
      return Fail(ErrorCode::kEnvironment, "cannot allocate host memory to check results", "",
                  "memory or its limit is used up", "tune smaller sizes");
    }
    COTUNE_RETURN_IF_ERROR(checked);
    if (!check.is_right()) return check;
    all.AddHashes(check);
  }
  return all;
}

Status ProgramOperands::CheckCopy(const Copy& copy, uint32_t kind, OperandCheck& check) {
  const ProgramGraph& graph = program_.graph();
  for (size_t input = 0; input < graph.inputs().size(); ++input) {
    const bool is_overwritten = std::any_of(
        graph.outputs().begin(), graph.outputs().end(),
        [&](const ProgramOutput& output) { return output.into == static_cast<int32_t>(input); });
    if (is_overwritten) continue;
    COTUNE_TRY(const bool same, device_.Equal(*copy.buffers[input], *kinds_[kind].before[input]));
    if (same) continue;
    // Either the payload or a guard.
    std::vector<std::byte> seen(copy.buffers[input]->bytes());
    if (Status read = device_.Read(*copy.buffers[input], seen); !read) return read;
    (GuardsIntact(seen) ? check.changed_send : check.wrote_outside) = true;
  }
  for (size_t output = 0; output < graph.outputs().size(); ++output) {
    COTUNE_TRY(const uint64_t hash,
               CheckOutput(*copy.buffers[BufferOf(output)], output, kinds_[kind], check));
    if (IsReplicated(output)) check.replicated_hashes.push_back(hash);
  }
  if (!check.is_right()) check.replicated_hashes.clear();
  return {};
}

Result<uint64_t> ProgramOperands::CheckOutput(DeviceBuffer& seen, size_t output, Kind& kind,
                                              OperandCheck& check) {
  for (const Image& image : kind.right[output]) {
    COTUNE_TRY(const bool same, device_.Equal(seen, *image.buffer));
    if (same) return image.hash;
  }
  std::vector<std::byte> bytes(seen.bytes());
  COTUNE_RETURN_IF_ERROR(device_.Read(seen, bytes));
  if (!GuardsIntact(bytes)) check.wrote_outside = true;
  const uint64_t wrong = CountWrongRows(output, *(*kind.expected)[output], Payload(bytes));
  check.wrong_elements += wrong;
  if (wrong > 0 || check.wrote_outside) return 0;
  const Dtype dtype = program_.graph().type(program_.graph().outputs()[output].value).dtype;
  const uint64_t hash = IsReplicated(output) ? HashOfValue(dtype, Payload(bytes)) : 0;
  if (kind.right[output].size() == kImagesMax) return hash;
  COTUNE_TRY(std::unique_ptr<DeviceBuffer> image, CopyOf(seen));
  kind.right[output].push_back({std::move(image), hash});
  return hash;
}

Result<std::unique_ptr<DeviceBuffer>> ProgramOperands::CopyOf(DeviceBuffer& buffer) {
  Result<std::unique_ptr<DeviceBuffer>> copy = device_.Allocate(buffer.bytes());
  if (!copy) return copy;
  COTUNE_RETURN_IF_ERROR(device_.Copy(**copy, buffer));
  return copy;
}

uint64_t ProgramOperands::CountWrongRows(size_t output, const EvaluatedValue& expected,
                                         std::span<const std::byte> seen) const {
  const ValueIndex value = program_.graph().outputs()[output].value;
  const ValueType& type = program_.graph().type(value);
  const uint64_t row_bytes = RowBytes(type);
  std::vector<EvaluatedValue> rows;
  for (uint64_t row = 0; row < expected.rows; ++row) rows.push_back(RowOf(expected, row));
  uint64_t wrong = 0;
  for (uint64_t row = 0; row < program_.RowsOf(value, rows_); ++row) {
    wrong += CountWrong(rows[EvaluatedRow(type, row)], seen.subspan(row * row_bytes, row_bytes));
  }
  return wrong;
}

}  // namespace cotune
