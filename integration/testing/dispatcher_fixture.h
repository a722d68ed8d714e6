// A dispatcher of a job of one rank, with a backend of the test's choosing.
#ifndef COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_
#define COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integration/dispatcher.h"
#include "plugins/fake/fake_backend.h"

namespace cotune {

inline ChoiceId Id(const std::string& text) { return *ChoiceId::Parse(text); }

inline DispatchTable Table(const ProblemClass& cls, std::vector<SizeRange> ranges) {
  return *DispatchTable::Build({DispatchRow{DispatchKey::Of(cls), std::move(ranges)}});
}

// A job of this process alone: every call is over before it returns.
class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() {
    std::string pattern = "/tmp/cotune.XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~DispatcherTest() override {
    dispatcher_.reset();
    job_.reset();
    std::filesystem::remove_all(folder_);
  }

  void JoinWith(const cotune_backend_api_t* table, const std::string& fake_script = "") {
    JobOptions options;
    options.context.launcher = "test";
    options.context.job_id = "job";
    options.context.socket_path = folder_ + "/s";
    options.catalogue.tables = {table};
    if (!fake_script.empty()) options.catalogue.settings["fake.script"] = fake_script;
    Result<std::unique_ptr<Job>> job = Job::Join(options);
    ASSERT_TRUE(job) << job.error().ToText();
    job_ = std::move(*job);
    dispatcher_ = std::make_unique<Dispatcher>(*job_);
  }
  void JoinFake(const std::string& script) { JoinWith(fake::BackendApi(), script); }

  ProblemClass Sum() const {
    return job_->Class(Collective::kAllReduce, Dtype::kF32, Reduction::kSum);
  }
  Call SumOf(uint64_t count) {
    send_.assign(count, 3.0F);
    recv_.assign(count, 0.0F);
    Call call;
    call.reduction = Reduction::kSum;
    call.count = count;
    call.send = send_.data();
    call.recv = recv_.data();
    return call;
  }
  // The choice that runs, or the error.
  std::string Runs(const Call& call) {
    const Result<CallExplanation> explanation = dispatcher_->Explain(call);
    return explanation ? explanation->choice.text() : explanation.error().ToText();
  }

  std::string folder_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<float> send_, recv_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_
