// A dispatcher of a job of one rank, with a backend of the test's choosing.
#ifndef COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_
#define COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "integration/dispatcher.h"
#include "plugins/fake/fake_backend.h"

namespace cotune {

inline ChoiceId Id(const std::string& text) { return *ChoiceId::Parse(text); }

inline DispatchTable Table(const ProblemClass& cls, std::vector<SizeRange> ranges) {
  return *DispatchTable::Build({DispatchRow{DispatchKey::Of(cls), std::move(ranges)}});
}

// The fake backend, with memory that can be registered: choices named "zero_copy" run on it only.
inline const cotune_backend_api_t* FakeWithMemory() {
  static cotune_backend_api_t table = *fake::BackendApi();
  static const cotune_memory_v1_t memory = {
      .struct_size = sizeof(cotune_memory_v1_t),
      .flags = 0,
      .memory_register = [](cotune_group_t*, void*, uint64_t, int64_t,
                            cotune_error_t*) { return cotune_status_t{COTUNE_OK}; },
      .memory_unregister = [](cotune_group_t*, void*) {}};
  table.get_extension = [](const cotune_backend_t* backend, const char* id) -> const void* {
    if (std::string_view(id) == COTUNE_MEMORY_EXTENSION) return &memory;
    return fake::BackendApi()->get_extension(backend, id);
  };
  table.list_choices = [](const cotune_backend_t* backend, const cotune_problem_t* problem,
                          cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                          uint32_t* count, cotune_error_t* error) {
    cotune_problem_t plain = *problem;
    plain.flags &= ~static_cast<uint32_t>(COTUNE_PROBLEM_SYMMETRIC);
    return fake::BackendApi()->list_choices(backend, &plain, first, stride, capacity, count, error);
  };
  table.prepare = [](cotune_group_t* group, const cotune_problem_t* problem, const char* name,
                     int64_t deadline_ns, cotune_plan_t** plan, cotune_error_t* error) {
    cotune_problem_t plain = *problem;
    plain.flags &= ~static_cast<uint32_t>(COTUNE_PROBLEM_SYMMETRIC);
    if (std::string_view(name) == "zero_copy" && plain.flags == problem->flags) {
      return cotune_status_t{COTUNE_UNSUPPORTED};
    }
    return fake::BackendApi()->prepare(group, &plain, name, deadline_ns, plan, error);
  };
  return &table;
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
    options.observer = observer_;
    options.lines = lines_;
    options.recipes = recipes_;
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

  StageObserver* observer_ = nullptr;  // JoinWith gives these to the job
  EventSink* lines_ = nullptr;
  std::shared_ptr<const RecipeSource> recipes_;
  std::string folder_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<float> send_, recv_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_DISPATCHER_FIXTURE_H_
