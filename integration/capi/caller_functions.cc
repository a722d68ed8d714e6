#include "integration/capi/caller_functions.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/sha256.h"
#include "core/problem/choice_id.h"
#include "fmt/format.h"
#include "integration/capi/function_worker.h"
#include "integration/capi/read_options.h"

namespace cotune::capi {
namespace {

constexpr char kDefaultName[] = "caller";

// The functions as the caller has given them, with texts of their own.
struct FunctionSet {
  std::string name;
  std::string version;
  std::vector<NamedFunction> functions;
  FunctionGroupCalls group_calls;
};

bool HasBit(uint32_t mask, unsigned bit) { return (mask >> bit & 1) != 0; }

// Why the function does not run such a problem; "" if it does.
std::string WhyNot(const cotune_function& function, const ProblemClass& cls) {
  if (!HasBit(function.collectives, static_cast<unsigned>(cls.collective))) {
    return fmt::format("it does not run {}", Name(cls.collective));
  }
  if (function.dtypes != 0 && !HasBit(function.dtypes, static_cast<unsigned>(cls.dtype))) {
    return fmt::format("it does not run {}", Name(cls.dtype));
  }
  const bool reduces = cls.reduction != Reduction::kNone;
  if (reduces && function.reductions != 0 &&
      !HasBit(function.reductions, static_cast<unsigned>(cls.reduction))) {
    return fmt::format("it does not run {}", Name(cls.reduction));
  }
  return "";
}

class FunctionPlan final : public Plan {
 public:
  FunctionPlan(std::shared_ptr<FunctionWorker> worker, const NamedFunction& function,
               const Problem& problem, int32_t device)
      : worker_(std::move(worker)), function_(function), problem_(problem), device_(device) {}
  FunctionPlan(const FunctionPlan&) = delete;
  FunctionPlan& operator=(const FunctionPlan&) = delete;
  ~FunctionPlan() override {
    if (is_launched_) worker_->GiveUp();
  }

  bool is_capturable() const override {
    return device_ >= 0 && (function_.function.flags & COTUNE_FUNCTION_CAPTURABLE) != 0;
  }

  Status Launch(const LaunchArguments& arguments) override {
    const FunctionBytes bytes = BytesOf();
    if (device_ >= 0) return worker_->RunHere(function_, CallOf(arguments));
    COTUNE_RETURN_IF_ERROR(worker_->Post(function_, CallOf(arguments), bytes));
    is_launched_ = true;
    launched_ = arguments;
    give_up_ns_ = GiveUpNs(clock_.now_ns(), arguments.deadline_ns);
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    Result<bool> done = worker_->Await(std::min(until_ns, give_up_ns_), launched_.recv);
    const bool is_late = done && !*done && clock_.now_ns() >= give_up_ns_;
    if (is_late) {
      worker_->GiveUp();
      done = Fail(ErrorCode::kDeadline, fmt::format("function {} has not returned", function_.id),
                  "", "it waits for another rank, or does not keep to the deadline of its call",
                  "let the function end with an error when the time of its call is over");
    }
    if (!done || *done) is_launched_ = false;
    return done;
  }

  void Abort() override { worker_->GiveUp(); }
  bool IsAborted() const override { return worker_->is_given_up(); }

 private:
  // The plan ends the call by itself before its caller aborts it.
  static int64_t GiveUpNs(int64_t launched_ns, int64_t deadline_ns) {
    const int64_t latest_ns = LatestEndNs(launched_ns, deadline_ns);
    return deadline_ns + (latest_ns - deadline_ns) / 2;
  }

  bool ReadsSend() const {
    return problem_.cls.collective != Collective::kBroadcast ||
           worker_->rank() == problem_.cls.root;
  }

  FunctionBytes BytesOf() const {
    const uint64_t element_bytes = SizeBytes(problem_.cls.dtype);
    return {ReadsSend() ? problem_.send_elements() * element_bytes : 0,
            problem_.send_elements() * element_bytes, problem_.recv_elements() * element_bytes};
  }

  cotune_function_call CallOf(const LaunchArguments& arguments) const {
    cotune_function_call call{};
    call.struct_size = sizeof(call);
    call.collective = static_cast<cotune_collective>(problem_.cls.collective);
    call.dtype = static_cast<cotune_dtype>(problem_.cls.dtype);
    call.reduction = static_cast<cotune_reduction>(problem_.cls.reduction);
    call.root = problem_.cls.root;
    call.rank = worker_->rank();
    call.world_size = problem_.cls.world_size;
    call.device = device_;
    call.count = problem_.count;
    call.stream = arguments.stream;
    call.deadline_ns = arguments.deadline_ns;
    // The ABI has no const here: on host memory the function gets copies.
    call.send = const_cast<void*>(arguments.send);
    call.recv = arguments.recv;
    return call;
  }

  const std::shared_ptr<FunctionWorker> worker_;
  const NamedFunction function_;
  const Problem problem_;
  const int32_t device_;
  const MonotonicClock clock_;
  bool is_launched_ = false;
  LaunchArguments launched_;
  int64_t give_up_ns_ = 0;
};

class FunctionGroup final : public BackendGroup {
 public:
  FunctionGroup(std::shared_ptr<const FunctionSet> set, std::shared_ptr<FunctionWorker> worker,
                int32_t device)
      : set_(std::move(set)), worker_(std::move(worker)), device_(device) {}
  FunctionGroup(const FunctionGroup&) = delete;
  FunctionGroup& operator=(const FunctionGroup&) = delete;
  ~FunctionGroup() override { worker_->End(); }

  Result<std::unique_ptr<Plan>> Prepare(const Program& /*program*/, const Problem& problem,
                                        const Choice& choice, int64_t /*deadline_ns*/) override {
    const auto found =
        std::find_if(set_->functions.begin(), set_->functions.end(),
                     [&](const NamedFunction& each) { return each.id == choice.id.text(); });
    if (found == set_->functions.end()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("there is no function {}", choice.id.text()));
    }
    return std::make_unique<FunctionPlan>(worker_, *found, problem, device_);
  }

  Status RegisterMemory(void* /*data*/, uint64_t /*bytes*/, int64_t /*deadline_ns*/) override {
    return Fail(ErrorCode::kUnsupported, "functions of the caller register no memory");
  }
  void UnregisterMemory(void* /*data*/) override {}
  Status Health() override { return worker_->Health(); }
  void Abort() override { worker_->GiveUp(); }

 private:
  const std::shared_ptr<const FunctionSet> set_;
  const std::shared_ptr<FunctionWorker> worker_;
  const int32_t device_;
};

class FunctionsBackend final : public Backend {
 public:
  explicit FunctionsBackend(FunctionSet set)
      : set_(std::make_shared<const FunctionSet>(std::move(set))) {}

  const std::string& name() const override { return set_->name; }
  const std::string& version() const override { return set_->version; }

  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    ChoiceList list;
    if (!program.is_single_collective()) {
      list.refusals.push_back({name(), "functions of the caller run single collectives only"});
      return list;
    }
    for (const NamedFunction& each : set_->functions) {
      if (const std::string why = WhyNot(each.function, problem.cls); !why.empty()) {
        list.refusals.push_back({each.id, why});
        continue;
      }
      Choice choice{*ChoiceId::Parse(each.id)};
      choice.is_default = list.choices.empty();
      choice.is_capturable = (each.function.flags & COTUNE_FUNCTION_CAPTURABLE) != 0;
      choice.is_reproducible = (each.function.flags & COTUNE_FUNCTION_REPRODUCIBLE) != 0;
      list.choices.push_back(std::move(choice));
    }
    return list;
  }

  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    COTUNE_TRY(std::shared_ptr<FunctionWorker> worker,
               FunctionWorker::Open(set_->group_calls, parameters));
    return std::make_unique<FunctionGroup>(set_, std::move(worker), parameters.device);
  }

 private:
  const std::shared_ptr<const FunctionSet> set_;
};

tl::unexpected<Error> Wrong(std::string what, std::string next_step) {
  return Fail(ErrorCode::kUsage, std::move(what), "cotune_functions", "", std::move(next_step));
}

// The bits from the first to the last.
constexpr uint32_t Bits(unsigned first, unsigned last) {
  return (1u << (last + 1)) - (1u << first);
}

Status CheckBits(const cotune_function& function, const std::string& id) {
  constexpr uint32_t kCollectives = Bits(COTUNE_COLLECTIVE_ALL_REDUCE, COTUNE_COLLECTIVE_BROADCAST);
  if (function.collectives == 0 || (function.collectives & ~kCollectives) != 0) {
    return Wrong(fmt::format("function {} has the collectives {:#x}", id, function.collectives),
                 "set the bit 1u << COTUNE_COLLECTIVE_* of each collective that it runs");
  }
  if ((function.dtypes & ~Bits(COTUNE_F32, COTUNE_F8_E5M2)) != 0) {
    return Wrong(fmt::format("function {} has the dtypes {:#x}", id, function.dtypes),
                 "set the bit 1u << COTUNE_F32 and so on of each dtype that it runs; 0: all");
  }
  if ((function.reductions & ~Bits(COTUNE_REDUCE_SUM, COTUNE_REDUCE_AVERAGE)) != 0) {
    return Wrong(fmt::format("function {} has the reductions {:#x}", id, function.reductions),
                 "set the bit 1u << COTUNE_REDUCE_* of each reduction that it runs; 0: all");
  }
  constexpr uint32_t kFlags = COTUNE_FUNCTION_CAPTURABLE | COTUNE_FUNCTION_REPRODUCIBLE;
  if ((function.flags & ~kFlags) != 0) {
    return Wrong(fmt::format("function {} has the flags {:#x}", id, function.flags),
                 "set only COTUNE_FUNCTION_CAPTURABLE and COTUNE_FUNCTION_REPRODUCIBLE");
  }
  return {};
}

// The function at this place, checked.
Result<NamedFunction> ReadFunction(const cotune_functions& given, const std::string& backend,
                                   size_t place) {
  const size_t stride =
      given.function_stride == 0 ? sizeof(cotune_function) : given.function_stride;
  const auto* bytes = reinterpret_cast<const char*>(given.functions) + place * stride;
  COTUNE_TRY(const cotune_function function,
             ReadOptions(reinterpret_cast<const cotune_function*>(bytes), "cotune_function"));
  if (function.name == nullptr || function.run == nullptr) {
    return Wrong(fmt::format("name or run of function {} is NULL", place),
                 "give each function a name and run");
  }
  Result<ChoiceId> id = ChoiceId::FromBackend(backend, function.name);
  if (!id) {
    return Wrong(fmt::format("'{}' cannot be the name of a choice", function.name),
                 "use \"algorithm\" or \"algorithm?key=value&key=value\" of a-z, 0-9, _, . and -");
  }
  COTUNE_RETURN_IF_ERROR(CheckBits(function, id->text()));
  return NamedFunction{id->text(), function};
}

// The caller's version, and what the lists of choices follow from: ranks with the same version have
// the same lists.
std::string VersionOf(const std::string& given, const std::vector<NamedFunction>& functions) {
  std::string text;
  for (const NamedFunction& each : functions) {
    const cotune_function& function = each.function;
    text += fmt::format("{} {} {} {} {}\n", each.id, function.collectives, function.dtypes,
                        function.reductions, function.flags);
  }
  const std::string digest = Sha256Hex(text).substr(0, 8);
  return given.empty() ? digest : fmt::format("{}+{}", given, digest);
}

Result<FunctionSet> ReadFunctions(const cotune_functions& given) {
  COTUNE_TRY(const cotune_functions functions, ReadOptions(&given, "cotune_functions"));
  FunctionSet set;
  set.name = functions.name == nullptr ? kDefaultName : functions.name;
  if (!ChoiceId::FromBackend(set.name, "a")) {
    return Wrong(fmt::format("'{}' cannot be the name of functions", set.name),
                 "begin with a-z, and use a-z, 0-9 and _, at most 31 characters");
  }
  if (functions.functions == nullptr || functions.function_count == 0) {
    return Wrong("there is no function",
                 "give functions and function_count, or no cotune_functions");
  }
  if ((functions.open == nullptr) != (functions.close == nullptr)) {
    return Wrong("one of open and close is NULL", "give both, or none");
  }
  const size_t first_bytes = functions.functions->struct_size;
  if (functions.function_stride != 0 && functions.function_stride < first_bytes) {
    return Wrong(fmt::format("function_stride is {}, and a function has {} bytes",
                             functions.function_stride, first_bytes),
                 "give the bytes from one function to the next, or 0");
  }
  std::set<std::string> names;
  for (size_t place = 0; place < functions.function_count; ++place) {
    COTUNE_TRY(NamedFunction function, ReadFunction(functions, set.name, place));
    if (!names.insert(function.id).second) {
      return Wrong(fmt::format("two functions have the name {}", function.id),
                   "give each function another name");
    }
    // The text of the caller need not live.
    function.function.name = nullptr;
    set.functions.push_back(std::move(function));
  }
  set.version = VersionOf(functions.version == nullptr ? "" : functions.version, set.functions);
  set.group_calls = {functions.open, functions.close, functions.context};
  return set;
}

}  // namespace

Result<std::shared_ptr<Backend>> MakeFunctionsBackend(const cotune_functions& given) {
  COTUNE_TRY(FunctionSet set, ReadFunctions(given));
  return std::make_shared<FunctionsBackend>(std::move(set));
}

}  // namespace cotune::capi
