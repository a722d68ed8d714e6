#include "cli/output/json_output.h"

#include <fstream>

#include "cli/output/program_words.h"
#include "cli/testing/json_schema.h"
#include "core/testing/database_entries.h"
#include "core/testing/twin_recipes.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

using Json = nlohmann::json;

Json Schema() {
  std::ifstream file("docs/cli_output.schema.json");
  EXPECT_TRUE(file.good());
  return Json::parse(file);
}

// The document, after it was found to fit the schema.
Json Checked(const std::string& text) {
  EXPECT_TRUE(text.ends_with("}\n"));
  Json document = Json::parse(text);
  const Json schema = Schema();
  EXPECT_EQ(FindSchemaViolation(schema, schema, document), "") << text;
  EXPECT_EQ(document["schema_version"], 1);
  return document;
}

TuneSummary Summary() {
  TuneSummary summary;
  summary.database = "/db/x.tdb";
  summary.committed = true;
  summary.measured_cells = 2;
  summary.pre_syncs = 1;
  summary.pre_sync_ns = 1'500'000;
  summary.times.all = {.choices_ns = 1000,
                       .compile_ns = 2000,
                       .warm_ns = 3000,
                       .sync_ns = 4000,
                       .measure_ns = 5000,
                       .agree_ns = 6000,
                       .save_ns = 7500};
  summary.times.nodes = {
      {.node = "all_reduce/sum", .choices_ns = 500, .compile_ns = 2500, .measure_ns = 4500}};
  summary.entries = {EntryForTest(1024), EntryForTest(4096)};
  summary.backend_refusals = {{"cuda", "no device"}};
  return summary;
}

TEST(JsonOutputTest, TuneAndBenchHoldTheTimesOfTheStages) {
  const Json expected = Json::parse(R"({
    "choices_us": 1.0, "compile_us": 2.0, "warm_us": 3.0, "sync_us": 4.0, "measure_us": 5.0,
    "agree_us": 6.0, "save_us": 7.5,
    "nodes": [{"node": "all_reduce/sum", "choices_us": 0.5, "compile_us": 2.5, "measure_us": 4.5}]
  })");
  EXPECT_EQ(Checked(TuneJson(Summary()))["result"]["times"], expected);
  EXPECT_EQ(Checked(BenchJson(Summary()))["result"]["times"], expected);
}

TEST(JsonOutputTest, TuneHoldsWinnersAndEntries) {
  const Json document = Checked(TuneJson(Summary()));
  EXPECT_EQ(document["command"], "tune");
  const Json& result = document["result"];
  EXPECT_EQ(result["database"], "/db/x.tdb");
  EXPECT_EQ(result["measured_cells"], 2);
  EXPECT_EQ(result["pre_sync_us"], 1500.0);
  ASSERT_EQ(result["winners"].size(), 1u);
  EXPECT_EQ(result["winners"][0]["choice"], "host/ring?chunk=65536");
  EXPECT_EQ(result["winners"][0]["first_bytes"], 4096);
  EXPECT_EQ(result["winners"][0]["last_bytes"], 16384);
  EXPECT_NEAR(result["winners"][0]["gain"].get<double>(), 41.2 / 35.0, 1e-9);
  ASSERT_EQ(result["entries"].size(), 2u);
  const Json& entry = result["entries"][0];
  EXPECT_EQ(entry["collective"], "all_reduce");
  EXPECT_EQ(entry["bytes"], 4096);
  EXPECT_EQ(entry["winner"]["time_us"], 35.0);
  EXPECT_EQ(entry["winner"]["default"], "host/tree");
  ASSERT_EQ(entry["choices"].size(), 4u);
  EXPECT_EQ(entry["choices"][0]["samples_ns"].size(), 50u);
  EXPECT_EQ(entry["choices"][0]["warm_time_us"], 31.0);
  EXPECT_TRUE(entry["choices"][1]["warm_time_us"].is_null());
  EXPECT_EQ(entry["choices"][3]["outcome"], "wrong_result");
  EXPECT_EQ(entry["choices"][3]["wrong"], 12);
  EXPECT_EQ(entry["choices"][1]["time_us"], 41.2);
  for (const char* key : {"time_us", "interval_us", "warm_time_us", "algbw_GBps", "busbw_GBps"}) {
    EXPECT_TRUE(entry["choices"][3][key].is_null()) << key << " of a choice without a time";
  }
  EXPECT_EQ(entry["refusals"][1]["reason"], "no device");
  EXPECT_EQ(entry["machine"]["cpu_model"], "model a");
}

TEST(JsonOutputTest, AWinnerWithoutOthersHasNoTimesOfThem) {
  TuneSummary summary = Summary();
  Winner& winner = summary.entries[0].winner;
  winner.runner_up.reset();
  winner.fallback.reset();
  winner.runner_up_median_ns = winner.fallback_median_ns = 0;
  const Json shown = Checked(TuneJson(summary))["result"]["entries"][0]["winner"];
  EXPECT_EQ(shown["time_us"], 35.0);
  EXPECT_TRUE(shown["runner_up_time_us"].is_null());
  EXPECT_TRUE(shown["default_time_us"].is_null());
}

TEST(JsonOutputTest, BenchIsATuneWithoutDatabase) {
  const Json document = Checked(BenchJson(Summary()));
  EXPECT_EQ(document["command"], "bench");
  EXPECT_FALSE(document["result"].contains("database"));
}

TEST(JsonOutputTest, ErrorsKeepEveryPart) {
  const Error error{ErrorCode::kRankLost, "rank 2 is lost", "stage warm",
                    "it was killed",      "run again",      {2}};
  const Json document = Checked(ErrorJson("tune", error));
  EXPECT_EQ(document["error"], Json({{"code", "rank_lost"},
                                     {"exit_code", 5},
                                     {"what", "rank 2 is lost"},
                                     {"where", "stage warm"},
                                     {"cause", "it was killed"},
                                     {"next_step", "run again"},
                                     {"ranks", {2}}}));
  Checked(ErrorJson("", {ErrorCode::kUsage, "unknown command \"x\"", "", "", "", {}}));
}

TEST(JsonOutputTest, BytesThatAreNotUtf8AreReplaced) {
  const Json document =
      Checked(ErrorJson("db show", {ErrorCode::kDatabase, "bad \xff file", "", "", "", {}}));
  EXPECT_EQ(document["error"]["what"], "bad \xef\xbf\xbd file");
}

TEST(JsonOutputTest, ExplainSaysWhatRunsAndWhyOthersLost) {
  TunedDatabase database;
  database.Put(EntryForTest(1024));
  const Problem asked = EntryForTest(1024).cell.problem;
  const Fingerprint here = EntryForTest(1).fingerprint;
  Json document = Checked(ExplainJson(Explain(database, "x", asked, here).value()));
  EXPECT_EQ(document["result"]["runs"]["choice"], "host/ring?chunk=65536");
  EXPECT_TRUE(document["result"]["runs"]["end_bytes"].is_null());
  const Json& choices = document["result"]["entry"]["choices"];
  EXPECT_TRUE(choices[0]["why_it_lost"].is_null());
  EXPECT_EQ(choices[1]["why_it_lost"], "17.7 % slower: 41.2 us (41.2-41.2 us, 50 rounds)");

  document = Checked(ExplainJson(Explain(TunedDatabase(), "x", asked, here).value()));
  EXPECT_TRUE(document["result"]["runs"].is_null());
  EXPECT_TRUE(document["result"]["default"].is_null());
  EXPECT_EQ(document["result"]["misses"], Json({"the database is empty"}));
  Explanation unknown = Explain(TunedDatabase(), "x", asked, here).value();
  unknown.fallback = IdForTest("host/two_shot");
  EXPECT_EQ(Checked(ExplainJson(unknown))["result"]["default"], "host/two_shot");
}

// A form of the program in which one all_reduce serves for two and absorbs its reader.
TEST(JsonOutputTest, AnExplanationHasTheStepsOfTheForm) {
  const ProgramGraph graph =
      ProgramGraph::Parse(
          "%x = input f32 [R, 64]\n%a = all_reduce sum %x\n%b = all_reduce sum %x\n"
          "%y = add %a, %b\n%z = relu %y\nreturn %z\n")
          .value();
  const TwinRecipes recipes;
  Explanation explanation =
      Explain(TunedDatabase(), "x", EntryForTest(1024).cell.problem, Fingerprint()).value();
  EXPECT_TRUE(Checked(ExplainJson(explanation))["result"]["recipe"].is_null());
  explanation.recipe =
      InWords(recipes, graph, IdForTest("host/ring?chunk=64&fuse=1&via=once")).value();
  const Json expected = Json::parse(R"({"via": "once", "steps": [
    {"operations": ["all_reduce", "add"], "is_bucket": false, "choice": "host/ring?chunk=64"},
    {"operations": ["relu"], "is_bucket": false, "choice": null}]})");
  EXPECT_EQ(Checked(ExplainJson(explanation))["result"]["recipe"], expected);
  EXPECT_NE(ExplanationText(explanation)
                .find("\n  steps: all_reduce + add by host/ring?chunk=64, then relu\n"),
            std::string::npos)
      << ExplanationText(explanation);
}

// Two sizes of a program that run by one choice.
TEST(JsonOutputTest, SizesShareTheRecipeOfAProgram) {
  DatabaseEntry small = EntryForTest(1024);
  small.program_text = "%x = input f32 [R, 64]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n";
  DatabaseEntry large = small;
  large.cell.problem.count *= 2;
  WordedRecipes recipes;
  const std::optional<RecipeInWords>& first = recipes.Of(small, IdForTest("host/ring"));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(RecipeText(*first), "all_reduce by host/ring, then relu");
  EXPECT_EQ(&recipes.Of(large, IdForTest("host/ring")), &first);
  EXPECT_EQ(RecipeText(*recipes.Of(large, IdForTest("host/ring?fuse=1"))),
            "all_reduce + relu by host/ring");
  DatabaseEntry plain = EntryForTest(1024);
  EXPECT_FALSE(recipes.Of(plain, IdForTest("host/ring")).has_value());
}

TEST(JsonOutputTest, OtherCommandsFitTheSchema) {
  Json document =
      Checked(PluginListJson({{"/a.so", "host", "1.0", "1.0", {"host"}, true, "loaded", ""},
                              {"/b.so", "", "", "", {}, false, "refused", "no such symbol"}}));
  EXPECT_EQ(document["result"]["plugins"][1]["reason"], "no such symbol");
  document = Checked(DbShowJson(
      "x", {{EntryForTest(8), std::nullopt},
            {EntryForTest(9), Miss{MissReason::kMachineDiffers, "cores: 2 there, 4 here"}}}));
  EXPECT_EQ(document["result"]["entries"][0]["valid_here"], true);
  EXPECT_EQ(document["result"]["entries"][1]["not_valid_because"], "cores: 2 there, 4 here");
  document = Checked(DbMergeJson({"out", {"a", "b"}, 7, true}));
  EXPECT_EQ(document["result"]["entries"], 7);
  document = Checked(VersionJson({"0.1.0", "1.0", 1, "gcc 12.2"}));
  EXPECT_EQ(document["result"]["cotune"], "0.1.0");
}

TEST(JsonOutputTest, ConfigNamesEveryOrigin) {
  SettingSources sources;
  sources.flags = {{"budget", "5s"}};
  sources.backend_flags = {"host.slot_bytes=1M"};
  const Json document = Checked(ConfigShowJson(ResolveSettings(sources).value()));
  bool found = false;
  for (const Json& setting : document["result"]["settings"]) {
    if (setting["name"] != "budget") continue;
    found = true;
    EXPECT_EQ(setting["value"], "5s");
    EXPECT_EQ(setting["origin"], "--budget");
    EXPECT_EQ(setting["variable"], "COTUNE_BUDGET");
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(document["result"]["settings"].size(), AllSettings().size());
  for (const Json& setting : document["result"]["settings"]) {
    if (setting["name"] != "collective_fusion_enabled") continue;
    EXPECT_EQ(setting["aliases"], Json::array({"enable_custom_op_fusion"}));
  }
  EXPECT_EQ(document["result"]["backend_settings"][0]["value"], "1M");
}

// The validator must be able to say no.
TEST(JsonSchemaTest, ViolationsAreFound) {
  const Json schema = Schema();
  Json document = Json::parse(TuneJson(Summary()));
  document["result"]["entries"][0]["choices"][0].erase("wrong");
  EXPECT_NE(FindSchemaViolation(schema, schema, document)
                .find("/result/entries/0/choices/0: \"wrong\" is missing"),
            std::string::npos);
  document = Json::parse(TuneJson(Summary()));
  document["result"]["committed"] = "yes";
  EXPECT_NE(FindSchemaViolation(schema, schema, document)
                .find("/result/committed: \"yes\" is not of type"),
            std::string::npos);
  document = Json::parse(TuneJson(Summary()));
  document["result"]["more"] = 1;
  EXPECT_NE(FindSchemaViolation(schema, schema, document).find("/result/more: not known"),
            std::string::npos);
  EXPECT_NE(FindSchemaViolation(schema, schema, Json::object()), "");
}

}  // namespace
}  // namespace cotune::cli
