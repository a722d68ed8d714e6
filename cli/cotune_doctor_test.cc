// `cotune doctor`, with a driver that is not there and with one that stands in for NVIDIA's.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "cli/testing/cotune_program.h"
#include "core/base/usable_processors.h"
#include "core/database/tuned_database_lock.h"

namespace cotune::cli {
namespace {

class DoctorTest : public CotuneProgramTest {
 protected:
  // The findings of a run that ends with this code.
  nlohmann::json Findings(int exit_code, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"doctor", "--json", "--db", database_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramEnd end = Run(arguments);
    EXPECT_EQ(end.exit_code, exit_code) << end.out << end.err;
    const nlohmann::json result = Document(end)["result"];
    EXPECT_EQ(result["usable"], exit_code == 0);
    for (const nlohmann::json& finding : result["findings"]) {
      EXPECT_EQ(finding["next_step"].get<std::string>().empty(), finding["state"] == "ok")
          << finding;
    }
    return result["findings"];
  }

  // The one with this subject; null when there is none, or more.
  static nlohmann::json Find(const nlohmann::json& findings, const std::string& subject) {
    nlohmann::json found;
    for (const nlohmann::json& finding : findings) {
      if (finding["subject"] != subject) continue;
      if (!found.is_null()) return nullptr;
      found = finding;
    }
    EXPECT_FALSE(found.is_null()) << subject << " in " << findings;
    return found;
  }

  static void ExpectFinding(const nlohmann::json& finding, const std::string& state,
                            const std::string& text) {
    EXPECT_EQ(finding["state"], state) << finding;
    EXPECT_NE(finding.dump().find(text), std::string::npos) << text << "\nin " << finding;
  }

  // Eight GPUs without names that do not reach each other.
  void UseFakeDriver() {
    const std::string folder = folder_.path() + "/driver";
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(std::filesystem::canonical("plugins/nccl/fake_libcuda.so"),
                               folder + "/libcuda.so.1");
    environment_["LD_LIBRARY_PATH"] = folder;
  }
};

TEST_F(DoctorTest, AMachineWithoutADriverIsUsable) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU here";
  const nlohmann::json findings = Findings(0);
  ExpectFinding(Find(findings, "GPUs"), "note", "no NVIDIA driver: libcuda.so.1");
  ExpectFinding(Find(findings, "NVLink multicast"), "ok", "off in this process");
  // As many as the processors of this machine, as `cotune tune` starts.
  const size_t ranks = std::clamp<size_t>(ProcessorsIn(UsableProcessors()).size(), 2, 8);
  ExpectFinding(Find(findings, "launcher"), "ok",
                "cotune starts " + std::to_string(ranks) + " ranks itself");
  ExpectFinding(Find(findings, "plugin host"), "ok",
                "5 collectives of 1 MiB on " + std::to_string(ranks) + " ranks");
  ExpectFinding(Find(findings, "database"), "note", database_ + " is not there yet");
  EXPECT_FALSE(Find(findings, "/dev/shm").is_null());
  EXPECT_FALSE(Find(findings, "limits").is_null());
  EXPECT_FALSE(std::filesystem::exists(database_));

  const nlohmann::json wanted = Findings(3, {"--memory", "cuda"});
  ExpectFinding(Find(wanted, "GPUs"), "problem", "--memory host");
}

TEST_F(DoctorTest, ATuneIntoADatabaseThatIsNotThereYetIsNamed) {
  WriteFileForTest(database_ + ".journal", "");
  const nlohmann::json ended = Find(Findings(0), "database");
  ExpectFinding(ended, "note", database_ + " is not there yet");
  EXPECT_EQ(ended["next_step"], "a tune that was ended has left " + database_ +
                                    ".journal: run it again to go on from it");
  const DatabaseLock lock = DatabaseLock::Acquire(database_).value();
  const nlohmann::json running = Find(Findings(0), "database");
  ExpectFinding(
      running, "note",
      database_ + " is not there yet: process " + std::to_string(getpid()) + " is writing to it");
  EXPECT_EQ(running["next_step"], "wait until it ends");
}

TEST_F(DoctorTest, ATuneIntoADatabaseThatIsThereIsNamed) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  EXPECT_EQ(Find(Findings(0), "database")["details"].dump().find("is writing to"),
            std::string::npos);
  const DatabaseLock lock = DatabaseLock::Acquire(database_).value();
  const nlohmann::json running = Find(Findings(0), "database");
  ExpectFinding(running, "note", "entries are valid here");
  EXPECT_EQ(running["details"][0], "process " + std::to_string(getpid()) + " is writing to " +
                                       database_ + "; the results counted are from before that");
  EXPECT_EQ(running["next_step"], "wait until that tune ends");
}

TEST_F(DoctorTest, DescribesTheGpusOfADriver) {
  UseFakeDriver();
  environment_["CUDA_VISIBLE_DEVICES"] = "0,1,2,3,4,5,6,7";
  const nlohmann::json findings = Findings(0, {"--memory", "host"});
  ExpectFinding(Find(findings, "driver"), "ok", folder_.path() + "/driver/libcuda.so.1");
  ExpectFinding(Find(findings, "GPUs"), "note", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 leaves 8");
  for (const char* gpu : {"GPU 0", "GPU 7"}) {
    ExpectFinding(Find(findings, gpu), "ok", "of unknown name");
  }
  ExpectFinding(Find(findings, "peer access"), "note", "56 of 56 directions");
  if (!std::filesystem::exists("/dev/nvidia0")) {
    ExpectFinding(Find(findings, "NVLink"), "note", "unknown: libnvidia-ml.so.1");
  }
}

TEST_F(DoctorTest, ALibraryThatWasNamedAndIsNoneIsAProblem) {
  const std::string file = folder_.path() + "/libnccl.so.2";
  WriteFileForTest(file, "no library");
  environment_["COTUNE_NCCL_LIBRARY"] = file;
  const nlohmann::json found = Find(Findings(3), "NCCL");
  ExpectFinding(found, "problem", file + " cannot be used");
  EXPECT_EQ(found["details"].size(), 1u) << found;
}

TEST_F(DoctorTest, SaysWhetherTheDatabaseIsOfUse) {
  ASSERT_EQ(TuneSmall(database_).exit_code, 0);
  ExpectFinding(Find(Findings(0), "database"), "ok", "2 of 2 entries are valid here, writable");
  const std::string bytes = ReadFileForTest(database_);
  WriteFileForTest(database_, bytes.substr(0, bytes.size() - 7));
  ExpectFinding(Find(Findings(3), "database"), "problem", "truncated");
  EXPECT_EQ(ReadFileForTest(database_), bytes.substr(0, bytes.size() - 7));
}

TEST_F(DoctorTest, NamesPluginsThatAreRefused) {
  const std::string broken = environment_["COTUNE_PLUGIN_PATH"] + "/cotune_broken.so";
  WriteFileForTest(broken, "no library");
  ExpectFinding(Find(Findings(3), "plugin"), "problem", broken);
  environment_["COTUNE_PLUGIN_PATH"] = folder_.path();
  ExpectFinding(Find(Findings(3), "plugins"), "problem", "by COTUNE_PLUGIN_PATH");
}

TEST_F(DoctorTest, AFolderThatIsMissingIsAProblemWithItsNextStep) {
  environment_["XDG_RUNTIME_DIR"] = folder_.path() + "/no/such";
  ExpectFinding(Find(Findings(3), "plugins"), "problem",
                "set XDG_RUNTIME_DIR to a folder of yours");
}

TEST_F(DoctorTest, KnowsTheLauncherAndTellsCoresFromRanks) {
  environment_["RANK"] = environment_["LOCAL_RANK"] = "0";
  environment_["WORLD_SIZE"] = environment_["LOCAL_WORLD_SIZE"] = "1024";
  const nlohmann::json findings = Findings(0);
  ExpectFinding(Find(findings, "launcher"), "ok", "torchrun: rank 0 of 1024, 1024 on this host");
  ExpectFinding(Find(findings, "cores"), "note", "1024 ranks");
}

// Makes a system call fail with EPERM in this process and in what it starts, as a container's
// profile does.
void Forbid(uint32_t number) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    abort();
  }
}

// A child tries to read the memory of this process, as ranks do with each other.
bool MayReadAnother() {
  const pid_t parent = getpid();
  char byte = 'x';
  const pid_t child = fork();
  if (child == 0) {
    char seen = 0;
    const iovec local{&seen, 1};
    const iovec remote{&byte, 1};
    _exit(process_vm_readv(parent, &local, 1, &remote, 1, 0) == 1 && seen == 'x' ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

TEST_F(DoctorTest, TriesWhetherRanksMayReadEachOther) {
  const nlohmann::json finding = Find(Findings(0), "memory of other ranks");
  if (MayReadAnother()) {
    ExpectFinding(finding, "ok", "may be read");
  } else {
    ExpectFinding(finding, "note", "host/peer_read is left out");
  }
}

// In a process of its own, as a filter cannot be taken off.
TEST_F(DoctorTest, SaysWhyRanksMayNotReadEachOther) {
  const pid_t child = fork();
  if (child == 0) {
    Forbid(SYS_process_vm_readv);
    const nlohmann::json findings = Findings(0);
    ExpectFinding(Find(findings, "memory of other ranks"), "note",
                  "process_vm_readv: Operation not permitted");
    _exit(HasFailure() ? 1 : 0);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(DoctorTest, SaysWhoseTheRootFolderIs) {
  struct stat root {};
  ASSERT_EQ(stat("/", &root), 0);
  const bool is_trusted =
      (root.st_uid == 0 || root.st_uid == getuid()) && (root.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  const nlohmann::json finding = Find(Findings(is_trusted ? 0 : 3), "root folder");
  if (is_trusted) {
    ExpectFinding(finding, "ok", "belongs to this user or to root");
  } else {
    ExpectFinding(finding, "note", "are refused, wherever they lie");
  }
}

TEST_F(DoctorTest, TheTextHasALineForEachFindingAndASum) {
  const ProgramEnd end = Run({"doctor", "--db", database_, "--memory", "host"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  EXPECT_NE(end.out.find("OK       plugin host: "), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("note     database: "), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("\n         next: cotune tune\n"), std::string::npos) << end.out;
  EXPECT_TRUE(end.out.ends_with(" notes, 0 problems\n")) << end.out;
}

}  // namespace
}  // namespace cotune::cli
