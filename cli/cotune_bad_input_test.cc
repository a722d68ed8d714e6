// The real program on everything that can be wrong with its input.
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "cli/testing/cotune_program.h"
#include "core/database/tuned_database_lock.h"

namespace cotune::cli {
namespace {

class BadInputTest : public CotuneProgramTest {
 protected:
  // Runs it, expects this exit code and every text in standard error, and the same error in JSON.
  void ExpectError(std::vector<std::string> arguments, int exit_code, const std::string& name,
                   const std::vector<std::string>& texts) const {
    const ProgramEnd end = Run(arguments);
    EXPECT_EQ(end.exit_code, exit_code) << end.err;
    EXPECT_EQ(end.out, "");
    const std::string head = "cotune: error " + std::to_string(exit_code) + " (" + name + "): ";
    EXPECT_NE(end.err.find(head), std::string::npos) << end.err;
    for (const std::string& text : texts) {
      EXPECT_NE(end.err.find(text), std::string::npos) << text << "\nin " << end.err;
    }
    arguments.emplace_back("--json");
    const ProgramEnd with_json = Run(arguments);
    EXPECT_EQ(with_json.exit_code, exit_code) << with_json.err;
    const nlohmann::json document = Document(with_json);
    EXPECT_EQ(document["error"]["code"], name);
    EXPECT_EQ(document["error"]["exit_code"], exit_code);
  }

  // Expects the same error of every reader of a database for these bytes, and the file unchanged.
  void ExpectBadDatabase(const std::string& bytes, const std::vector<std::string>& texts) const {
    WriteFileForTest(database_, bytes);
    const std::vector<std::string> tune = {
        "tune", "--ranks", "2", "--collective", "broadcast", "--sizes", "1K", "--db", database_};
    ExpectError(tune, 7, "database", texts);
    ExpectError({"explain", "broadcast", "1K", "f32", "--db", database_}, 7, "database", texts);
    ExpectError({"db", "show", database_}, 7, "database", texts);
    const std::string output = folder_.path() + "/out.tdb";
    ExpectError({"db", "merge", output, database_}, 7, "database", texts);
    EXPECT_FALSE(std::filesystem::exists(output));
    ExpectError({"db", "merge", database_, database_}, 7, "database", texts);
    EXPECT_EQ(ReadFileForTest(database_), bytes);
  }
};

TEST_F(BadInputTest, NamesThatNobodyKnows) {
  ExpectError({"tune", "--collective", "all_reduse"}, 2, "usage",
              {"unknown collective 'all_reduse' (--collective)", "did you mean all_reduce?"});
  ExpectError({"tune", "--dtype", "bf-16"}, 2, "usage",
              {"unknown dtype 'bf-16' (--dtype)", "did you mean bf16?"});
  ExpectError({"tune", "--reduction", "summ"}, 2, "usage",
              {"unknown reduction 'summ'", "did you mean sum?"});
  ExpectError({"tune", "--reduction", "avg"}, 2, "usage", {"did you mean average?"});
  ExpectError({"tune", "--backend", "hots", "--collective", "broadcast"}, 2, "usage",
              {"unknown backend 'hots' (--backend)", "host"});
  ExpectError({"tune", "--force-choice", "all_reduce=host/ring"}, 2, "usage",
              {"lists no such choice for it at any size; did you mean host/ring?chunk="});
  ExpectError({"tune", "--plugin-path", "/nodir"}, 3, "environment",
              {"(/nodir): No such file or directory; check --plugin, or the setting plugin_path "
               "(--plugin-path, COTUNE_PLUGIN_PATH)"});
  ExpectError(
      {"tune", "--colective", "all"}, 2, "usage",
      {"unknown flag --colective", ": did you mean --collective?; see `cotune tune --help`\n"});
  ExpectError({"tnue"}, 2, "usage", {"unknown command \"tnue\"", "did you mean tune?"});
  ExpectError({"help", "tun"}, 2, "usage", {"unknown command \"tun\"", "did you mean tune?"});
  ExpectError({"help", "db", "shwo"}, 2, "usage",
              {"unknown command \"shwo\" (cotune db)", "did you mean show?"});
  ExpectError({"help", "tune", "all"}, 2, "usage", {"unexpected argument \"all\""});
}

TEST_F(BadInputTest, SizesThatDoNotParse) {
  ExpectError({"tune", "--sizes", "1K:4Q:x2"}, 2, "usage",
              {"--sizes, character 5", "unknown suffix 'Q'", "or 1K,3M,100\n"});
  ExpectError({"tune", "--sizes", ""}, 2, "usage", {"--sizes, character 1", "a number is missing"});
  ExpectError({"explain", "all_reduce", "much", "f32"}, 2, "usage", {"SIZE, character 1"});
}

TEST_F(BadInputTest, RowsThatDoNotParse) {
  const std::string program = folder_.path() + "/p.cotune";
  WriteFileForTest(program, "%x = input f32 [R, 8]\n%s = all_reduce sum %x\nreturn %s\n");
  ExpectError({"tune", "--program", program, "--rows", "1:4:y2"}, 2, "usage",
              {"\"1:4:y2\" is not a list of rows (--rows, character 5)", "or + (a number)"});
  ExpectError({"tune", "--program", program, "--rows", "4.5"}, 2, "usage",
              {"unexpected '.'; write for example 64, 1:1024:x2, 16:256:+16 or 1,3,100\n"});
}

TEST_F(BadInputTest, SettingsThatDoNotFit) {
  ExpectError({"tune", "--budget", "soon"}, 2, "usage", {"\"soon\" for budget (--budget)"});
  environment_["COTUNE_MIN_ROUNDS"] = "none";
  ExpectError({"tune"}, 2, "usage", {"\"none\" for min_rounds (COTUNE_MIN_ROUNDS)"});
  environment_.erase("COTUNE_MIN_ROUNDS");
  const std::string file = folder_.path() + "/c.toml";
  WriteFileForTest(file, "\nbugdet = 1s\n");
  ExpectError({"config", "show", "--config", file}, 2, "usage",
              {"unknown setting \"bugdet\" (" + file + ":2)", "did you mean budget?"});
  // No settings at all.
  WriteFileForTest(file, std::string("\x7f"
                                     "ELF\x1b[2J\x01") +
                             std::string(5000, 'x') + " = 1\n");
  const ProgramEnd binary = Run({"tune", "--config", file});
  EXPECT_EQ(binary.exit_code, 2);
  EXPECT_NE(binary.err.find("\"\\x7fELF\\x1b[2J\\x01xxx"), std::string::npos) << binary.err;
  EXPECT_LT(binary.err.size(), 500u);
}

TEST_F(BadInputTest, BackendSettingsThatNobodyKnows) {
  const std::vector<std::string> texts = {"unknown setting \"host.slot_byte\" (--set)",
                                          "did you mean host.slot_bytes?"};
  const std::vector<std::vector<std::string>> commands = {
      {"tune"}, {"bench"}, {"explain", "all_reduce", "1K", "f32"}, {"plugin", "list"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--set", "host.slot_byte=1M"});
    ExpectError(command, 2, "usage", texts);
  }
  const std::string file = folder_.path() + "/c.toml";
  WriteFileForTest(file, "budget = 1s\n[host]\nslots = 1\n");
  ExpectError({"tune", "--config", file}, 2, "usage",
              {"unknown setting \"host.slots\" (" + file + ":3)", "known: host.slot_bytes"});
  environment_["COTUNE_CONFIG"] = file;
  ExpectError({"tune"}, 2, "usage", {"unknown setting \"host.slots\" (" + file + ":3)"});
  environment_.erase("COTUNE_CONFIG");
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> with_bad = command;
    with_bad.insert(with_bad.end(), {"--set", "host.slot_bytes=banana"});
    ExpectError(with_bad, 2, "usage", {"bad value for host.slot_bytes (--set)", "'banana'"});
  }
  // Whose backend is not there cannot be checked.
  const ProgramEnd end = TuneSmall(database_, {"--set", "hots.slot_bytes=1M"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string warning =
      "cotune: warning: setting hots.slot_bytes (--set) has no effect: there is no backend hots; "
      "known: host; did you mean host?\n";
  const size_t first = end.err.find(warning);
  ASSERT_NE(first, std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(warning, first + 1), std::string::npos) << end.err;
  EXPECT_EQ(TuneSmall(database_, {"--set", "host.slot_bytes=1M"}).exit_code, 0);
}

TEST_F(BadInputTest, UnknownVariablesWarnOnce) {
  environment_["COTUNE_BUGDET"] = "1s";
  const ProgramEnd end = TuneSmall(database_);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  const std::string warning =
      "cotune: warning: unknown variable COTUNE_BUGDET is ignored; did you mean COTUNE_BUDGET?";
  const size_t first = end.err.find(warning);
  ASSERT_NE(first, std::string::npos) << end.err;
  EXPECT_EQ(end.err.find(warning, first + 1), std::string::npos) << end.err;
}

TEST_F(BadInputTest, DatabasesThatCannotBeUsed) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  const std::string good = ReadFileForTest(database_);
  ExpectBadDatabase(good.substr(0, good.size() - 7), {"truncated", database_});
  ExpectBadDatabase(good.substr(0, 11), {database_});
  ExpectBadDatabase("", {"empty", database_});
  ExpectBadDatabase("%PDF-1.4 something else entirely, long enough for a header", {"not a cotune"});
  std::string newer = good;
  newer[8] = 99;  // the schema version follows the 8 letters of the magic
  ExpectBadDatabase(newer, {"99"});
  std::string corrupt = good;
  corrupt[good.size() / 2] = static_cast<char>(corrupt[good.size() / 2] ^ 1);
  ExpectBadDatabase(corrupt, {"checksum"});
}

TEST_F(BadInputTest, DatabasesThatAreNotThere) {
  ExpectError({"db", "show", folder_.path() + "/no.tdb"}, 3, "environment", {"no.tdb"});
  ExpectError({"explain", "all_reduce", "1K", "f32", "--db", folder_.path() + "/no.tdb"}, 3,
              "environment", {"no.tdb"});
  ExpectError({"tune", "--ranks", "2", "--sizes", "1K", "--db", folder_.path() + "/no/x.tdb"}, 3,
              "environment",
              {"): the folder of the tuned database is not there (" + folder_.path() +
               "/no); make it, or name another\n"});
  const ProgramEnd never =
      Run({"explain", "all_reduce", "1K", "f32", "--ranks", "2", "--memory", "host"});
  EXPECT_EQ(never.exit_code, 0) << never.err;
  EXPECT_NE(never.out.find("  there is no tuned database yet (" + folder_.path() + "/cache/"),
            std::string::npos)
      << never.out;
}

TEST_F(BadInputTest, AReadOnlyPlaceIsAnErrorOnlyWhenSomethingIsNew) {
  // Programs that are started from here on obey permissions, even for root. Without the right to
  // drop it, this is no root.
  prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
  const std::string folder = folder_.path() + "/fixed";
  const std::string database = folder + "/x.tdb";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(TuneSmall(database).exit_code, 0);
  const std::string bytes = ReadFileForTest(database);
  ASSERT_EQ(chmod(folder.c_str(), 0555), 0);
  const ProgramEnd known = TuneSmall(database);
  EXPECT_EQ(known.exit_code, 0) << known.err;
  EXPECT_TRUE(known.out.starts_with("all_reduce sum f32, 2 ranks")) << known.out;
  EXPECT_NE(known.err.find("0 measured, 2 known"), std::string::npos) << known.err;
  EXPECT_EQ(known.err.find("warning"), std::string::npos) << known.err;
  const ProgramEnd unknown = TuneSmall(database, {"--dtype", "f32,f64"});
  EXPECT_EQ(unknown.exit_code, 3) << unknown.err;
  EXPECT_EQ(unknown.out, "");
  EXPECT_NE(unknown.err.find("2 of 4 cells have to be measured, and their results could not be "
                             "kept: the folder of the tuned database "
                             "cannot be written (" +
                             folder + "): Permission denied"),
            std::string::npos)
      << unknown.err;
  EXPECT_EQ(TuneSmall(database, {"--force"}).exit_code, 3);
  // Neither may the lock be there.
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  std::filesystem::remove(database + ".lock");
  ASSERT_EQ(chmod(folder.c_str(), 0555), 0);
  EXPECT_EQ(TuneSmall(database).exit_code, 0);
  ExpectError({"tune", "--ranks", "2", "--sizes", "1K", "--db", folder + "/new.tdb"}, 3,
              "environment", {"7 of 7 cells have to be measured", folder});
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  EXPECT_EQ(ReadFileForTest(database), bytes);
}

// A row for size 0 alone would decide calls of all sizes.
TEST_F(BadInputTest, Size0IsNotMeasured) {
  const std::vector<std::string> texts = {"no size has an element for every rank",
                                          "broadcast f32 0"};
  const std::vector<std::string> more = {"--ranks", "2", "--collective", "broadcast", "--sizes"};
  for (const char* command : {"tune", "bench"}) {
    std::vector<std::string> arguments = {command};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.emplace_back("0");
    ExpectError(arguments, 2, "usage", texts);
  }
  ExpectError({"explain", "broadcast", "0", "f32"}, 2, "usage", texts);
  const ProgramEnd mixed = Run(
      {"tune", "--ranks", "2", "--collective", "broadcast", "--sizes", "0,1K", "--db", database_});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_NE(mixed.err.find("left out, since they are less than an element for every rank: "
                           "broadcast f32 0"),
            std::string::npos)
      << mixed.err;
  const nlohmann::json shown = Document(Run({"db", "show", database_, "--json"}))["result"];
  EXPECT_EQ(shown["entries"].size(), 1u);
}

TEST_F(BadInputTest, ADatabaseOfATuneThatWasEndedHasAJournal) {
  WriteFileForTest(database_ + ".journal", "");
  ExpectError({"db", "show", database_}, 3, "environment",
              {"a tune that was ended has left " + database_ + ".journal: run it again"});
  ExpectError({"explain", "broadcast", "1K", "f32", "--db", database_}, 3, "environment",
              {"a tune that was ended has left " + database_ + ".journal: run it again"});
}

TEST_F(BadInputTest, ADatabaseThatATuneIsWritingIsWaitedFor) {
  const DatabaseLock lock = DatabaseLock::Acquire(database_).value();
  WriteFileForTest(database_ + ".journal", "");
  const std::string reason =
      "process " + std::to_string(getpid()) + " is writing to it; wait until it ends";
  ExpectError({"db", "show", database_}, 3, "environment", {database_, reason});
  ExpectError({"explain", "broadcast", "1K", "f32", "--db", database_}, 3, "environment",
              {database_, reason});
  EXPECT_FALSE(std::filesystem::exists(database_));
}

TEST_F(BadInputTest, ATuneIntoADatabaseThatIsThereIsNamed) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  const std::vector<std::vector<std::string>> commands = {
      {"db", "show", database_}, {"explain", "all_reduce", "1K", "f32", "--db", database_}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramEnd before = Run(command);
    EXPECT_EQ(before.exit_code, 0) << before.err;
    EXPECT_EQ(before.err, "");
    const DatabaseLock lock = DatabaseLock::Acquire(database_).value();
    const ProgramEnd during = Run(command);
    EXPECT_EQ(during.exit_code, 0) << during.err;
    EXPECT_EQ(during.err, "cotune: note: process " + std::to_string(getpid()) + " is writing to " +
                              database_ + "; the results shown are from before that\n");
    EXPECT_EQ(during.out, before.out);
  }
}

// Without --db a missing database is no error of `explain`.
TEST_F(BadInputTest, ExplainNamesTheTuneOfTheUsualDatabase) {
  const std::vector<std::string> explain = {"explain", "broadcast", "1K", "f32"};
  const std::string before = Run(explain).out;
  EXPECT_EQ(before.find("writing to it"), std::string::npos) << before;
  const std::string flag = " --db ";
  const size_t at = before.find(flag);
  ASSERT_NE(at, std::string::npos) << before;
  const size_t begin = at + flag.size();
  const std::string usual = before.substr(begin, before.find('\n', begin) - begin);
  std::filesystem::create_directories(std::filesystem::path(usual).parent_path());
  WriteFileForTest(usual + ".journal", "");
  const ProgramEnd ended = Run(explain);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("has left " + usual + ".journal: run it again"), std::string::npos)
      << ended.out;
  const DatabaseLock lock = DatabaseLock::Acquire(usual).value();
  const ProgramEnd running = Run(explain);
  EXPECT_EQ(running.exit_code, 0) << running.err;
  EXPECT_NE(running.out.find("process " + std::to_string(getpid()) +
                             " is writing to it; wait until it ends"),
            std::string::npos)
      << running.out;
}

TEST_F(BadInputTest, PluginsThatCannotBeLoaded) {
  const std::string plugin = folder_.path() + "/plugin.so";
  WriteFileForTest(plugin, "no library");
  ExpectError({"tune", "--plugin", plugin}, 8, "plugin_refused", {plugin});
  ExpectError({"tune", "--plugin", folder_.path() + "/missing.so"}, 8, "plugin_refused",
              {"missing.so"});
  ExpectError({"tune", "--plugin", ""}, 8, "plugin_refused", {"the path is not absolute"});
  ExpectError({"tune", "--plugin", "./missing.so"}, 8, "plugin_refused",
              {std::filesystem::current_path() / "missing.so"});
  std::filesystem::copy_file(environment_["COTUNE_PLUGIN_PATH"] + "/cotune_host.so", plugin,
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(chmod(plugin.c_str(), 0777), 0);
  ExpectError({"tune", "--plugin", plugin}, 8, "plugin_refused", {plugin, "writ"});
  // One that is only found is left out with a warning.
  const std::string found = environment_["COTUNE_PLUGIN_PATH"] + "/zz.so";
  WriteFileForTest(found, "no library");
  const ProgramEnd end = TuneSmall(database_);
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_NE(end.err.find("warning: plugin " + found + " is not used"), std::string::npos)
      << end.err;
}

TEST_F(BadInputTest, NoPluginAtAll) {
  environment_["COTUNE_PLUGIN_PATH"] = folder_.path();
  ExpectError({"tune"}, 3, "environment", {"no backend can be used", "COTUNE_PLUGIN_PATH"});
  const std::string searched = "no plugin was found (" + folder_.path() +
                               "): this folder holds no shared library of a plugin, such as "
                               "cotune_host.so; name the folder that holds cotune_host.so by "
                               "COTUNE_PLUGIN_PATH or the setting plugin_path";
  ExpectError({"tune"}, 3, "environment", {"no backend can be used: " + searched});
  // The variable is not to blame for a flag.
  const ProgramEnd flag = Run({"tune", "--plugin-path", folder_.path() + "/missing"});
  EXPECT_EQ(flag.exit_code, 3);
  EXPECT_NE(flag.err.find("(" + folder_.path() + "/missing): No such file or directory; check "),
            std::string::npos)
      << flag.err;
  EXPECT_EQ(flag.err.find("set COTUNE_PLUGIN_PATH"), std::string::npos) << flag.err;
  const ProgramEnd empty = Run({"plugin", "list"});
  EXPECT_NE(empty.err.find("(environment): " + searched), std::string::npos) << empty.err;
  const ProgramEnd examined = Run({"doctor"});
  EXPECT_NE(examined.out.find("no plugin was found (" + folder_.path() + ")"), std::string::npos)
      << examined.out;
  for (const std::string& path : {std::string(), folder_.path(), folder_.path() + "/missing"}) {
    environment_["COTUNE_PLUGIN_PATH"] = path;
    const ProgramEnd listed = Run({"plugin", "list"});
    EXPECT_EQ(listed.exit_code, 3) << path;
    EXPECT_NE(listed.err.find(path.ends_with("missing") ? "see the reasons" : "COTUNE_PLUGIN_PATH"),
              std::string::npos)
        << listed.err;
  }
}

TEST_F(BadInputTest, AStaleSocketIsNoObstacle) {
  const std::string folder = folder_.path() + "/cotune";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string path = folder + "/stale.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int socket_file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(socket_file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(socket_file);  // as a killed job leaves it: the name stays, nobody listens
  environment_["COTUNE_RANK"] = "0";
  environment_["COTUNE_WORLD_SIZE"] = "1";
  environment_["COTUNE_LOCAL_RANK"] = "0";
  environment_["COTUNE_LOCAL_SIZE"] = "1";
  environment_["COTUNE_JOB_ID"] = "stale";
  const ProgramEnd end =
      Run({"tune", "--collective", "broadcast", "--sizes", "1K", "--db", database_});
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

TEST_F(BadInputTest, LaunchersThatContradict) {
  environment_["RANK"] = environment_["LOCAL_RANK"] = "0";
  environment_["WORLD_SIZE"] = environment_["LOCAL_WORLD_SIZE"] = "2";
  environment_["OMPI_COMM_WORLD_RANK"] = environment_["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  environment_["OMPI_COMM_WORLD_SIZE"] = environment_["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  ExpectError({"tune"}, 2, "usage", {"OMPI_COMM_WORLD_RANK", "RANK"});
}

TEST_F(BadInputTest, SmallThingsHaveANextStep) {
  environment_["COTUNE_WARM"] = "1s";
  environment_["COTUNE_FOO"] = "1";
  const ProgramEnd end = Run({"config", "show"});
  EXPECT_NE(end.err.find("COTUNE_WARM is ignored; did you mean COTUNE_WARM_TIMEOUT?"),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("COTUNE_FOO is ignored; no setting has a name like it"), std::string::npos)
      << end.err;
  environment_.erase("COTUNE_WARM");
  environment_.erase("COTUNE_FOO");
  SetFault("warm@7:kill");
  ExpectError({"tune", "--ranks", "2", "--sizes", "1K", "--db", database_}, 2, "usage",
              {"'warm@7:kill' names rank 7 (COTUNE_FAULT)", "ranks 0 to 1"});
  SetFault("");
  environment_["HOME"] = "here";
  environment_.erase("XDG_CACHE_HOME");
  ExpectError({"explain", "broadcast", "1K", "f32"}, 3, "environment",
              {"no place for the tuned database (HOME=here): it is not an absolute path"});
  environment_["RANK"] = "5";
  environment_["WORLD_SIZE"] = "2";
  ExpectError({"tune"}, 2, "usage",
              {"RANK=5 is not a rank of WORLD_SIZE=2", "correct RANK, or unset both"});
}

// No rank can be there in time; the least that there is to say is not "0 ms".
TEST_F(BadInputTest, AShortTimeoutIsNotCalledNothing) {
  const ProgramEnd end = TuneSmall(database_, {"--warm-timeout", "1ms"});
  EXPECT_EQ(end.err.find(" 0 ms"), std::string::npos) << end.err;
}

TEST_F(BadInputTest, RanksWithOtherProblemsSayWhich) {
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "dtypes";
  const auto command = [&](const char* dtype) {
    return Command({"tune", "--collective", "broadcast", "--sizes", "1K", "--db", database_,
                    "--dtype", dtype});
  };
  environment_["COTUNE_RANK"] = "0";
  ProgramRun rank_0(command("f32"), environment_);
  environment_["COTUNE_RANK"] = "1";
  ProgramRun rank_1(command("f64"), environment_);
  const ProgramEnd end_0 = rank_0.Wait();
  const ProgramEnd end_1 = rank_1.Wait();
  EXPECT_EQ(end_0.exit_code, 5) << end_0.err;
  EXPECT_EQ(end_1.exit_code, 5) << end_1.err;
  const std::string all = end_0.err + end_1.err;
  for (const char* text : {"rank 1 differs in node 1: rank 1 has 'broadcast/none/f64/",
                           "and rank 0 has 'broadcast/none/f32/"}) {
    EXPECT_NE(all.find(text), std::string::npos) << all;
  }
}

TEST_F(BadInputTest, RanksWithMoreProblemsSayHowMany) {
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "more";
  const auto command = [&](const char* dtypes) {
    return Command({"tune", "--collective", "broadcast", "--sizes", "1K", "--db", database_,
                    "--dtype", dtypes});
  };
  environment_["COTUNE_RANK"] = "0";
  ProgramRun rank_0(command("f32,f64"), environment_);
  environment_["COTUNE_RANK"] = "1";
  ProgramRun rank_1(command("f32"), environment_);
  const ProgramEnd end_0 = rank_0.Wait();
  const ProgramEnd end_1 = rank_1.Wait();
  EXPECT_EQ(end_0.exit_code, 5) << end_0.err;
  EXPECT_EQ(end_1.exit_code, 5) << end_1.err;
  EXPECT_NE((end_0.err + end_1.err).find("rank 1 differs in node 2: rank 1 has no such node"),
            std::string::npos)
      << end_0.err << end_1.err;
}

TEST_F(BadInputTest, BenchLooksAtItsDatabaseBeforeItMeasures) {
  const std::string missing = folder_.path() + "/no.tdb";
  const ProgramEnd end = Run({"bench", "--ranks", "2", "--sizes", "1K", "--db", missing});
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_NE(end.err.find(missing), std::string::npos) << end.err;
  EXPECT_EQ(end.err.find("to measure"), std::string::npos) << end.err;
}

TEST_F(BadInputTest, RanksThatContradictTheLauncher) {
  environment_["COTUNE_RANK"] = "0";
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "x";
  ExpectError({"tune", "--ranks", "3"}, 2, "usage", {"--ranks 3 contradicts the launcher"});
}

TEST_F(BadInputTest, RanksWithOtherSettingsDisagree) {
  environment_["COTUNE_WORLD_SIZE"] = "2";
  environment_["COTUNE_JOB_ID"] = "disagree";
  const auto command = [&](const char* noise) {
    return Command({"tune", "--collective", "broadcast", "--sizes", "1K", "--db", database_,
                    "--noise-percent", noise});
  };
  environment_["COTUNE_RANK"] = "0";
  ProgramRun rank_0(command("2"), environment_);
  environment_["COTUNE_RANK"] = "1";
  ProgramRun rank_1(command("3"), environment_);
  const ProgramEnd end_0 = rank_0.Wait();
  const ProgramEnd end_1 = rank_1.Wait();
  EXPECT_EQ(end_0.exit_code, 5) << end_0.err;
  EXPECT_EQ(end_1.exit_code, 5) << end_1.err;
  EXPECT_NE((end_0.err + end_1.err).find("noise_percent"), std::string::npos)
      << end_0.err << end_1.err;
  EXPECT_FALSE(std::filesystem::exists(database_));
}

TEST_F(BadInputTest, TheProgramThatShipsInjectsNoFault) {
  environment_["COTUNE_FAULT"] = "benchmark@1:kill";
  const ProgramEnd end = TuneSmall(database_);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("COTUNE_FAULT is ignored"), std::string::npos) << end.err;
}

TEST_F(BadInputTest, ARankThatDiesIsNamed) {
  SetFault("benchmark@1:kill");
  const ProgramEnd end = TuneSmall(database_);
  EXPECT_EQ(end.exit_code, 5) << end.err;
  EXPECT_NE(end.err.find("rank 1"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("while all_reduce sum f32 out of place at 1024 bytes was measured"),
            std::string::npos)
      << end.err;
  SetFault("benchmark@0:kill");
  const ProgramEnd without_rank_0 = TuneSmall(database_, {"--json"});
  EXPECT_EQ(without_rank_0.exit_code, 5) << without_rank_0.err;
  EXPECT_EQ(Document(without_rank_0)["error"]["ranks"], nlohmann::json({0}));
}

TEST_F(BadInputTest, AFullDiskUnderTheResultIsAnError) {
  const ProgramEnd end =
      ProgramRun({"/bin/sh", "-c", Command({}).front() + " --version > /dev/full"}, environment_)
          .Wait();
  EXPECT_EQ(end.exit_code, 3) << end.err;
  EXPECT_NE(end.err.find("cannot write the result (standard output)"), std::string::npos)
      << end.err;
}

}  // namespace
}  // namespace cotune::cli
