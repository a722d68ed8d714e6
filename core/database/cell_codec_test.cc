#include "core/database/cell_codec.h"

#include <random>

#include "core/database/tuned_database.pb.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

TEST(CellCodecTest, EveryFieldComesBack) {
  const DatabaseEntry entry = EntryForTest(1024);
  const DatabaseEntry decoded = DecodeCell(EncodeCell(entry)).value();
  EXPECT_EQ(decoded.fingerprint.machine, entry.fingerprint.machine);
  EXPECT_EQ(decoded.fingerprint.backends, entry.fingerprint.backends);
  EXPECT_EQ(decoded.fingerprint.measuring_mode, "eager");
  EXPECT_EQ(decoded.cell.problem, entry.cell.problem);
  ASSERT_EQ(decoded.cell.verdicts.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Verdict& expected = entry.cell.verdicts[i];
    const Verdict& verdict = decoded.cell.verdicts[i];
    EXPECT_EQ(verdict.id, expected.id);
    EXPECT_EQ(verdict.outcome, expected.outcome);
    EXPECT_EQ(verdict.is_default, expected.is_default);
    EXPECT_EQ(verdict.reason, expected.reason);
    EXPECT_EQ(verdict.wrong_elements, expected.wrong_elements);
    EXPECT_EQ(verdict.samples_ns, expected.samples_ns);
    EXPECT_EQ(verdict.skews_ns, expected.skews_ns);
    EXPECT_EQ(verdict.repetitions, expected.repetitions);
    EXPECT_EQ(verdict.median_ns, expected.median_ns);
    EXPECT_EQ(verdict.warm_median_ns, expected.warm_median_ns);
    EXPECT_EQ(verdict.interval_low_ns, expected.interval_low_ns);
    EXPECT_EQ(verdict.interval_high_ns, expected.interval_high_ns);
  }
  EXPECT_EQ(decoded.cell.verdicts[0].warm_median_ns, 31'000);
  ASSERT_EQ(decoded.cell.refusals.size(), 2u);
  EXPECT_EQ(decoded.cell.refusals[1].choice, "cuda");
  EXPECT_EQ(decoded.cell.refusals[1].reason, "no device");
  EXPECT_EQ(decoded.cell.start_mode, StartMode::kWindow);
  EXPECT_EQ(decoded.cell.invalid_rounds, 2);
  EXPECT_EQ(decoded.cell.buffer_copies, 5);
  EXPECT_EQ(decoded.cell.sm_clock_mhz, 1980);
  EXPECT_EQ(decoded.cell.throttle_reasons, "hw_thermal,sw_power_cap");
  EXPECT_EQ(decoded.fingerprint.connections, entry.fingerprint.connections);
  EXPECT_EQ(decoded.fingerprint.connections.at("ucx"), "tcp/eth0 between all ranks");
  EXPECT_EQ(decoded.winner, entry.winner);
  EXPECT_EQ(decoded.winner.next_best, std::vector{IdForTest("host/two_shot")});
  EXPECT_FALSE(decoded.cell.is_unsteady);
  DatabaseEntry unsteady = entry;
  unsteady.cell.is_unsteady = true;
  EXPECT_EQ(DecodeCell(EncodeCell(unsteady)).value(), unsteady);
  EXPECT_EQ(decoded.cotune_version, "0.1.0");
  EXPECT_EQ(decoded.measured_unix_s, 1'700'000'000);
}

TEST(CellCodecTest, ATextIsThatOfTheProgram) {
  DatabaseEntry entry = EntryForTest(8);
  entry.cell.problem.cls.program_digest = ProgramDigestForTest();
  entry.program_text = kProgramTextForTest;
  EXPECT_EQ(DecodeCell(EncodeCell(entry)).value(), entry);
  entry.cell.problem.cls.program_digest ^= 1;
  EXPECT_EQ(DecodeCell(EncodeCell(entry)).error().what, "bad field 'program_text' in tuned data");
  entry.program_text = "no program";
  EXPECT_EQ(DecodeCell(EncodeCell(entry)).error().what, "bad field 'program_texts' in tuned data");
}

TEST(CellCodecTest, RandomEntriesComeBackAndDifferentOnesHaveDifferentBytes) {
  std::mt19937_64 random(1);
  std::map<std::string, DatabaseEntry> by_bytes;
  for (int i = 0; i < 500; ++i) {
    const DatabaseEntry entry = RandomEntryForTest(random);
    const std::string bytes = EncodeCell(entry);
    EXPECT_EQ(DecodeCell(bytes).value(), entry);
    const auto [at, is_new] = by_bytes.emplace(bytes, entry);
    EXPECT_EQ(at->second, entry);
  }
  EXPECT_GT(by_bytes.size(), 400u);
}

TEST(CellCodecTest, TextsNeedNotBeUtf8) {
  DatabaseEntry entry = EntryForTest(8);
  entry.fingerprint.machine["cpu_model"] = "\xff\xfe";
  entry.cell.refusals[0].reason = std::string("\xc3\0 end", 6);
  EXPECT_EQ(DecodeCell(EncodeCell(entry)).value(), entry);
}

TEST(CellCodecTest, BadFieldsAreNamed) {
  proto::CellRecord good;
  ASSERT_TRUE(good.ParseFromString(EncodeCell(EntryForTest(8))));
  const auto what_of = [&](auto spoil) {
    proto::CellRecord record = good;
    spoil(record);
    const Result<DatabaseEntry> entry = DecodeCell(record.SerializeAsString());
    if (entry) return std::string("decoded");
    EXPECT_EQ(entry.error().code, ErrorCode::kDatabase);
    EXPECT_FALSE(entry.error().next_step.empty());
    return entry.error().ToText();
  };
  EXPECT_EQ(what_of([](auto&) {}), "decoded");
  EXPECT_THAT(what_of([](auto& r) { r.set_winner(0); }), HasSubstr("'winner'"));
  EXPECT_THAT(what_of([](auto& r) { r.set_winner(99); }), HasSubstr("there is no text 99"));
  EXPECT_THAT(what_of([](auto& r) { r.set_winner(r.problem_class()); }), HasSubstr("'winner'"));
  EXPECT_THAT(what_of([](auto& r) { r.set_problem_class(r.winner()); }),
              HasSubstr("'problem_class'"));
  EXPECT_THAT(what_of([](auto& r) { r.set_problem_class(0); }), HasSubstr("'problem_class'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->mutable_verdicts(0)->set_outcome(8); }),
              HasSubstr("'verdicts.outcome'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->mutable_verdicts(0)->set_choice(0); }),
              HasSubstr("'verdicts.choice'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->mutable_verdicts(1)->set_reason(77); }),
              HasSubstr("'verdicts.reason'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->mutable_refusals(0)->set_reason(77); }),
              HasSubstr("'refusals.reason'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_start_mode(0); }),
              HasSubstr("'start_mode'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_buffer_copies(1u << 31); }),
              HasSubstr("'buffer_copies'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_sm_clock_mhz(1u << 31); }),
              HasSubstr("'sm_clock_mhz'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_throttle_reasons(1000); }),
              HasSubstr("'throttle_reasons'"));
  EXPECT_THAT(
      what_of([](auto& r) { r.mutable_fingerprint()->mutable_connections()->SwapElements(0, 1); }),
      HasSubstr("'nccl' comes after 'ucx'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_runner_up(r.problem_class()); }),
              HasSubstr("'runner_up'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_fallback(1000); }),
              HasSubstr("'fallback'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_why(1000); }), HasSubstr("'why'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_detail()->set_cotune_version(1000); }),
              HasSubstr("'cotune_version'"));
  EXPECT_THAT(what_of([](auto& r) { r.mutable_fingerprint()->add_machine()->set_name("a"); }),
              HasSubstr("'fingerprint.machine'"));
  EXPECT_EQ(DecodeCell("").error().code, ErrorCode::kDatabase);
}

TEST(CellCodecTest, DamagedBytesNeverCrash) {
  std::mt19937_64 random(2);
  const std::string good = EncodeCell(EntryForTest(8));
  for (size_t length = 0; length < good.size(); ++length) {
    const Result<DatabaseEntry> entry = DecodeCell(std::string_view(good).substr(0, length));
    if (!entry) {
      EXPECT_EQ(entry.error().code, ErrorCode::kDatabase);
    }
  }
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = good;
    for (uint64_t n = 1 + random() % 4; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const Result<DatabaseEntry> entry = DecodeCell(bytes);
    // There is no checksum here: what still decodes must at least be a cell that encodes.
    if (entry) {
      EXPECT_EQ(DecodeCell(EncodeCell(*entry)).value(), *entry);
    } else {
      EXPECT_EQ(entry.error().code, ErrorCode::kDatabase);
    }
  }
}

}  // namespace
}  // namespace cotune
