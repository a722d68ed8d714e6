// Step records as bytes.
#include <array>
#include <cstddef>

#include "core/base/cut_at_word.h"
#include "core/ranks/step_record.h"
#include "core/ranks/step_record.pb.h"
#include "google/protobuf/arena.h"

namespace cotune {
namespace {

using Texts = google::protobuf::RepeatedPtrField<std::string>;

void Write(const std::vector<std::string>& texts, Texts& out) {
  out.Reserve(static_cast<int>(texts.size()));
  for (const std::string& text : texts) *out.Add() = text;
}
std::vector<std::string> Read(const Texts& texts) { return {texts.begin(), texts.end()}; }

void Write(const RankSpan& span, proto::RankSpan& out) {
  out.set_start_elapsed_ns(span.start_elapsed_ns);
  out.set_duration_ns(span.duration_ns);
}
RankSpan Read(const proto::RankSpan& in) { return {in.start_elapsed_ns(), in.duration_ns()}; }

// Message has an error_code and an error_text.
template <typename Message>
void WriteFailure(const StepFailure& failure, Message& out) {
  out.set_error_code(1 + static_cast<int>(failure.code));
  out.set_error_text(CutAtWord(failure.text, StepFailure::kTextBytesMax));
}
template <typename Message>
bool HasKnownCode(const Message& in) {
  return in.error_code() >= 0 && in.error_code() <= 1 + static_cast<int>(ErrorCode::kDisagreement);
}
// The code is a known one.
template <typename Message>
std::optional<StepFailure> ReadFailure(const Message& in) {
  if (in.error_code() == 0) return std::nullopt;
  return StepFailure{static_cast<ErrorCode>(in.error_code() - 1), in.error_text()};
}

// One overload a message type.
struct MessageWriter {
  proto::StepRecord& record;

  void operator()(const Done& /*message*/) const { record.mutable_done(); }
  void operator()(const HostOfRank& message) const {
    record.mutable_host_of_rank()->set_identity(message.identity);
  }
  void operator()(const BackendList& message) const {
    proto::BackendList& out = *record.mutable_backend_list();
    out.set_deadline_left_ns(message.deadline_left_ns);
    Write(message.identities, *out.mutable_identities());
    Write(message.part_identities, *out.mutable_part_identities());
  }
  void operator()(const GroupOfRank& message) const {
    Write(message.connections, *record.mutable_group_of_rank()->mutable_connections());
  }
  void operator()(const MemoryToRegister& message) const {
    record.mutable_memory_to_register()->set_bytes(message.bytes);
  }
  void operator()(const GpuOfRank& message) const {
    proto::GpuOfRank& out = *record.mutable_gpu_of_rank();
    out.set_cache_bytes(message.cache_bytes);
    out.set_uuid(message.uuid);
    out.set_may_share(message.may_share);
  }
  void operator()(const TableWish& message) const {
    record.mutable_table_wish()->set_wants_database(message.wants_database);
  }
  void operator()(const ProcessorsOfRank& message) const {
    record.mutable_processors_of_rank()->set_usable(message.usable);
  }
  void operator()(const TuneDigests& message) const {
    proto::TuneDigests& out = *record.mutable_tune_digests();
    out.mutable_fields()->Add(message.fields.begin(), message.fields.end());
    out.mutable_nodes()->Add(message.nodes.begin(), message.nodes.end());
  }
  void operator()(const FieldText& message) const {
    proto::FieldText& out = *record.mutable_field_text();
    out.set_name(message.name);
    out.set_value(message.value);
  }
  void operator()(const NodeText& message) const {
    record.mutable_node_text()->set_text(message.text);
  }
  void operator()(const ChoiceListDigests& message) const {
    record.mutable_choice_list_digests()->mutable_digests()->Add(message.digests.begin(),
                                                                 message.digests.end());
  }
  void operator()(const ChoiceTexts& message) const {
    Write(message.choices, *record.mutable_choice_texts()->mutable_choices());
  }
  void operator()(const WinnerFailures& message) const {
    proto::WinnerFailures& out = *record.mutable_winner_failures();
    for (const WinnerFailures::Failure& failure : message.failures) {
      proto::WinnerFailures::Failure& each = *out.add_failures();
      each.set_cell(failure.cell);
      each.set_is_refusal(failure.is_refusal);
      each.set_reason(failure.reason);
    }
  }
  void operator()(const CellBuffers& message) const {
    proto::CellBuffers& out = *record.mutable_cell_buffers();
    out.set_is_asked_to_stop(message.is_asked_to_stop);
    out.set_affordable_copies(message.affordable_copies);
    out.set_knows_clocks(message.knows_clocks);
  }
  void operator()(const PreparedChoices& message) const {
    Write(message.reasons, *record.mutable_prepared_choices()->mutable_reasons());
  }
  void operator()(const CheckedCall& message) const {
    proto::CheckedCall& out = *record.mutable_checked_call();
    Write(message.span, *out.mutable_span());
    out.set_wrong_elements(message.wrong_elements);
    out.set_mistake(message.mistake);
    out.mutable_replicated_hashes()->Add(message.replicated_hashes.begin(),
                                         message.replicated_hashes.end());
  }
  void operator()(const WarmCalls& message) const {
    Write(message.span, *record.mutable_warm_calls());
  }
  void operator()(const TakenSamples& message) const {
    proto::TakenSamples& out = *record.mutable_taken_samples();
    for (const TakenSamples::Sample& sample : message.samples) {
      proto::TakenSamples::Sample& each = *out.add_samples();
      Write(sample.span, *each.mutable_span());
      if (sample.failure) WriteFailure(*sample.failure, each);
    }
  }
  void operator()(const ClockReading& message) const {
    proto::ClockReading& out = *record.mutable_clock_reading();
    out.set_sm_mhz(message.sm_mhz);
    Write(message.throttle_reasons, *out.mutable_throttle_reasons());
  }
  void operator()(const ProcessorUse& message) const {
    proto::ProcessorUse& out = *record.mutable_processor_use();
    out.set_usable(message.usable);
    out.set_own_ns(message.own_ns);
    out.set_busy_ns(message.busy_ns);
    out.set_capacity_ns(message.capacity_ns);
  }
  void operator()(const TraceOfRank& message) const {
    proto::TraceOfRank& out = *record.mutable_trace_of_rank();
    Write(message.texts, *out.mutable_texts());
    for (const TraceOfRank::Entry& entry : message.entries) {
      proto::TraceOfRank::Entry& each = *out.add_entries();
      each.set_type(static_cast<uint32_t>(entry.type));
      each.set_kind(static_cast<uint32_t>(entry.kind));
      each.set_lane(entry.lane);
      each.set_name(entry.name);
      each.set_node(entry.node);
      each.set_choice(entry.choice);
      each.set_time_ns(entry.time_ns);
      each.set_value(entry.value);
    }
    out.set_dropped(message.dropped);
  }
};

// nullopt: an entry is none that a rank records.
std::optional<StepMessage> Read(const proto::TraceOfRank& in) {
  TraceOfRank message{.texts = Read(in.texts()), .dropped = in.dropped()};
  const size_t texts = message.texts.size();
  message.entries.reserve(in.entries().size());
  for (const proto::TraceOfRank::Entry& each : in.entries()) {
    if (each.type() > static_cast<uint32_t>(EventType::kLine) ||
        each.kind() > static_cast<uint32_t>(SpanKind::kCompile) || each.name() >= texts ||
        each.node() >= texts || each.choice() >= texts) {
      return std::nullopt;
    }
    message.entries.push_back({static_cast<EventType>(each.type()),
                               static_cast<SpanKind>(each.kind()), each.lane(), each.name(),
                               each.node(), each.choice(), each.time_ns(), each.value()});
  }
  return message;
}

// nullopt: a sample has a code that is none.
std::optional<StepMessage> Read(const proto::TakenSamples& in) {
  TakenSamples message;
  for (const proto::TakenSamples::Sample& each : in.samples()) {
    if (!HasKnownCode(each)) return std::nullopt;
    message.samples.push_back({Read(each.span()), ReadFailure(each)});
  }
  return message;
}

WinnerFailures Read(const proto::WinnerFailures& in) {
  WinnerFailures message;
  for (const proto::WinnerFailures::Failure& each : in.failures()) {
    message.failures.push_back({each.cell(), each.is_refusal(), each.reason()});
  }
  return message;
}

// nullopt: there is none that this build knows.
std::optional<StepMessage> ReadMessage(const proto::StepRecord& in) {
  switch (in.message_case()) {
    case proto::StepRecord::kDone:
      return Done{};
    case proto::StepRecord::kHostOfRank:
      return HostOfRank{in.host_of_rank().identity()};
    case proto::StepRecord::kBackendList:
      return BackendList{in.backend_list().deadline_left_ns(), Read(in.backend_list().identities()),
                         Read(in.backend_list().part_identities())};
    case proto::StepRecord::kGroupOfRank:
      return GroupOfRank{Read(in.group_of_rank().connections())};
    case proto::StepRecord::kMemoryToRegister:
      return MemoryToRegister{in.memory_to_register().bytes()};
    case proto::StepRecord::kGpuOfRank:
      return GpuOfRank{in.gpu_of_rank().cache_bytes(), in.gpu_of_rank().uuid(),
                       in.gpu_of_rank().may_share()};
    case proto::StepRecord::kTableWish:
      return TableWish{in.table_wish().wants_database()};
    case proto::StepRecord::kProcessorsOfRank:
      return ProcessorsOfRank{in.processors_of_rank().usable()};
    case proto::StepRecord::kTuneDigests: {
      const auto& fields = in.tune_digests().fields();
      const auto& nodes = in.tune_digests().nodes();
      return TuneDigests{{fields.begin(), fields.end()}, {nodes.begin(), nodes.end()}};
    }
    case proto::StepRecord::kFieldText:
      return FieldText{in.field_text().name(), in.field_text().value()};
    case proto::StepRecord::kNodeText:
      return NodeText{in.node_text().text()};
    case proto::StepRecord::kChoiceListDigests: {
      const auto& digests = in.choice_list_digests().digests();
      return ChoiceListDigests{{digests.begin(), digests.end()}};
    }
    case proto::StepRecord::kChoiceTexts:
      return ChoiceTexts{Read(in.choice_texts().choices())};
    case proto::StepRecord::kWinnerFailures:
      return Read(in.winner_failures());
    case proto::StepRecord::kCellBuffers:
      return CellBuffers{in.cell_buffers().is_asked_to_stop(),
                         in.cell_buffers().affordable_copies(), in.cell_buffers().knows_clocks()};
    case proto::StepRecord::kPreparedChoices:
      return PreparedChoices{Read(in.prepared_choices().reasons())};
    case proto::StepRecord::kCheckedCall: {
      const proto::CheckedCall& call = in.checked_call();
      const auto& hashes = call.replicated_hashes();
      return CheckedCall{
          Read(call.span()), call.wrong_elements(), call.mistake(), {hashes.begin(), hashes.end()}};
    }
    case proto::StepRecord::kWarmCalls:
      return WarmCalls{Read(in.warm_calls())};
    case proto::StepRecord::kTakenSamples:
      return Read(in.taken_samples());
    case proto::StepRecord::kClockReading:
      return ClockReading{in.clock_reading().sm_mhz(), Read(in.clock_reading().throttle_reasons())};
    case proto::StepRecord::kProcessorUse: {
      const proto::ProcessorUse& use = in.processor_use();
      return ProcessorUse{use.usable(), use.own_ns(), use.busy_ns(), use.capacity_ns()};
    }
    case proto::StepRecord::kTraceOfRank:
      return Read(in.trace_of_rank());
    case proto::StepRecord::MESSAGE_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

// The memory of one record while it is encoded or decoded: a sample's record needs no other.
class RecordArena {
 public:
  RecordArena() : arena_(Options(block_)) {}
  proto::StepRecord& NewRecord() {
    return *google::protobuf::Arena::CreateMessage<proto::StepRecord>(&arena_);
  }

 private:
  using Block = std::array<std::byte, 1024>;
  static google::protobuf::ArenaOptions Options(Block& block) {
    google::protobuf::ArenaOptions options;
    options.initial_block = reinterpret_cast<char*>(block.data());
    options.initial_block_size = block.size();
    return options;
  }
  alignas(std::max_align_t) Block block_;
  google::protobuf::Arena arena_;
};

}  // namespace

std::string EncodeStepRecord(const AnyStepRecord& record) {
  RecordArena arena;
  proto::StepRecord& out = arena.NewRecord();
  if (record.failure) WriteFailure(*record.failure, out);
  std::visit(MessageWriter{out}, record.message);
  return out.SerializeAsString();
}

Result<AnyStepRecord> DecodeStepRecord(std::string_view bytes) {
  RecordArena arena;
  proto::StepRecord& in = arena.NewRecord();
  std::optional<StepMessage> message;
  if (in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && HasKnownCode(in)) {
    message = ReadMessage(in);
  }
  if (!message) return UnreadableRecord();
  AnyStepRecord record;
  record.failure = ReadFailure(in);
  record.message = std::move(*message);
  return record;
}

}  // namespace cotune
