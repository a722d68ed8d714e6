#include "integration/capi/testing/function_ranks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

cotune_result Say(char* reason, size_t size, const std::string& text) {
  reason[text.copy(reason, size - 1)] = '\0';
  return COTUNE_ERROR_ENVIRONMENT;
}

uint64_t Blocks(cotune_collective collective, bool is_send, int world_size) {
  const bool is_large = collective == COTUNE_COLLECTIVE_ALL_TO_ALL ||
                        (collective == COTUNE_COLLECTIVE_REDUCE_SCATTER && is_send) ||
                        (collective == COTUNE_COLLECTIVE_ALL_GATHER && !is_send);
  return is_large ? static_cast<uint64_t>(world_size) : 1;
}

// The result at an index, where value(rank, index) is what that rank sends.
template <typename Value>
float ResultAt(cotune_collective collective, uint64_t index, int rank, int world_size,
               uint64_t count, int root, const Value& value) {
  const auto own = static_cast<uint64_t>(rank);
  const auto block = static_cast<int>(index / count);
  switch (collective) {
    case COTUNE_COLLECTIVE_ALL_GATHER:
      return value(block, index % count);
    case COTUNE_COLLECTIVE_ALL_TO_ALL:
      return value(block, own * count + index % count);
    case COTUNE_COLLECTIVE_BROADCAST:
      return value(root, index);
    default:
      break;
  }
  const bool scatters = collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
  float sum = 0;
  for (int each = 0; each < world_size; ++each) {
    sum += value(each, scatters ? own * count + index : index);
  }
  return sum;
}

}  // namespace

std::shared_ptr<Meeting> MeetingPlaces::At(const std::string& name, int world_size) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Meeting>& meeting = by_name_[name];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>(world_size);
  return meeting;
}

bool Meeting::AwaitLocked(std::unique_lock<std::mutex>& lock, int rank, int64_t deadline_ns) {
  const auto at = static_cast<size_t>(rank);
  const uint64_t turn = turn_;
  if (++arrived_ == sends_.size()) {
    arrived_ = 0;
    ++turn_;
    changed_.notify_all();
  }
  const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(deadline_ns)};
  changed_.wait_until(lock, end, [&] { return turn_ != turn || closed_[at] != nullptr; });
  return turn_ != turn && closed_[at] == nullptr;
}

bool Meeting::Await(int rank, int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  return AwaitLocked(lock, rank, deadline_ns);
}

bool Meeting::Exchange(int rank, const void* send, int64_t deadline_ns,
                       std::vector<const void*>& sends) {
  std::unique_lock lock(mutex_);
  sends_[static_cast<size_t>(rank)] = send;
  if (!AwaitLocked(lock, rank, deadline_ns)) return false;
  sends = sends_;
  return true;
}

void Meeting::Close(int rank) {
  const std::lock_guard lock(mutex_);
  closed_[static_cast<size_t>(rank)] = this;
  changed_.notify_all();
}

void TestEvent::Set() {
  const std::lock_guard lock(mutex_);
  is_set_ = true;
  changed_.notify_all();
}

void TestEvent::Await() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_set_; });
}

cotune_result RunNaively(RankInMeeting& at, const cotune_function_call& call, float* out,
                         char* reason, size_t size) {
  std::vector<const void*> sends;
  if (!at.meeting->Exchange(call.rank, call.send, call.deadline_ns, sends)) {
    return Say(reason, size, "a rank has not come");
  }
  const auto value = [&](int rank, uint64_t index) {
    return static_cast<const float*>(sends[static_cast<size_t>(rank)])[index];
  };
  const uint64_t elements = call.count * Blocks(call.collective, false, call.world_size);
  for (uint64_t i = 0; i < elements; ++i) {
    out[i] = ResultAt(call.collective, i, call.rank, call.world_size, call.count, call.root, value);
  }
  // The operands stay until every rank has read them.
  if (!at.meeting->Await(call.rank, call.deadline_ns)) {
    return Say(reason, size, "a rank has not finished");
  }
  return COTUNE_SUCCESS;
}

RankFunctions::RankFunctions() = default;

RankFunctions::~RankFunctions() {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [&] { return running_ == 0; });
}

// Counts a function that runs.
class RankFunctions::Running {
 public:
  explicit Running(RankFunctions& functions) : functions_(functions) {
    const std::lock_guard lock(functions_.mutex_);
    ++functions_.running_;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    const std::lock_guard lock(functions_.mutex_);
    --functions_.running_;
    functions_.returned_.notify_all();
  }

 private:
  RankFunctions& functions_;
};

void RankFunctions::Add(const std::string& name, TestFunction run) {
  entries_.push_back(std::make_unique<Entry>(Entry{name, std::move(run), this}));
  cotune_function function{};
  function.struct_size = sizeof(function);
  function.name = entries_.back()->name.c_str();
  for (uint32_t each = COTUNE_COLLECTIVE_ALL_REDUCE; each <= COTUNE_COLLECTIVE_BROADCAST; ++each) {
    function.collectives |= 1u << each;
  }
  function.dtypes = 1u << COTUNE_F32;
  function.reductions = 1u << COTUNE_REDUCE_SUM;
  function.run = [](void* context, cotune_function_group* group, cotune_function_call* call,
                    char* reason, size_t size) {
    auto& entry = *static_cast<Entry*>(context);
    const Running until_return(*entry.owner);
    auto& at = reinterpret_cast<Opened*>(group)->at;
    if (at.rank != call->rank) return Say(reason, size, "the call is of another rank");
    return entry.run(at, *call, reason, size);
  };
  function.context = entries_.back().get();
  listed_.push_back(function);
}

const cotune_functions* RankFunctions::table() {
  table_.struct_size = sizeof(table_);
  table_.version = version.c_str();
  table_.functions = listed_.data();
  table_.function_count = listed_.size();
  table_.open = Open;
  table_.close = Close;
  table_.context = this;
  return &table_;
}

cotune_result RankFunctions::Open(void* context, const cotune_function_group_info* info,
                                  cotune_function_group** group, char* /*reason*/,
                                  size_t /*size*/) {
  auto& self = *static_cast<RankFunctions*>(context);
  auto opened = std::make_unique<Opened>();
  opened->at = {self.places->At(info->name, info->world_size), info->rank};
  const std::lock_guard lock(self.mutex_);
  self.opened_.push_back(std::move(opened));
  *group = reinterpret_cast<cotune_function_group*>(self.opened_.back().get());
  return COTUNE_SUCCESS;
}

void RankFunctions::Close(void* context, cotune_function_group* group) {
  auto& self = *static_cast<RankFunctions*>(context);
  auto& opened = *reinterpret_cast<Opened*>(group);
  {
    const std::lock_guard lock(self.mutex_);
    EXPECT_FALSE(opened.is_closed) << "a group is closed twice";
    opened.is_closed = true;
  }
  opened.at.meeting->Close(opened.at.rank);
}

RankFunctions::Counts RankFunctions::counts() {
  const std::lock_guard lock(mutex_);
  Counts counts;
  for (const auto& each : opened_) {
    ++counts.opened;
    counts.closed += each->is_closed ? 1 : 0;
  }
  return counts;
}

FunctionRanks::FunctionRanks(int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    functions.push_back(std::make_unique<RankFunctions>());
  }
  std::string pattern = "/tmp/cotune.XXXXXX";
  folder = mkdtemp(pattern.data());
  const std::string plugin = folder + "/cotune_host.so";
  std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"), plugin);
  std::filesystem::permissions(plugin, std::filesystem::perms(0755));
  setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
}

FunctionRanks::~FunctionRanks() { std::filesystem::remove_all(folder); }

void FunctionRanks::Add(const std::string& name, const TestFunction& run) {
  for (const auto& each : functions) each->Add(name, run);
}

void FunctionRanks::Run(const std::function<void(int rank, cotune_group* group)>& body) {
  static int created = 0;
  const auto places = std::make_shared<MeetingPlaces>();
  for (const auto& each : functions) each->places = places;
  const std::string socket = fmt::format("{}/socket{}", folder, ++created);
  const std::string job = fmt::format("job{}", created);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    threads.emplace_back([&, rank] {
      cotune_group_options options{};
      options.struct_size = sizeof(options);
      options.rank = rank;
      options.world_size = size();
      options.job_id = job.c_str();
      options.socket_path = socket.c_str();
      options.plugin_path = folder.c_str();
      options.backends = backends;
      options.call_timeout_ns = call_timeout_ns;
      options.ignores_database = 1;
      const cotune_functions* const table = functions[static_cast<size_t>(rank)]->table();
      options.functions = table->function_count > 0 ? table : nullptr;
      cotune_group* group = nullptr;
      cotune_error error{};
      error.struct_size = sizeof(error);
      EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_SUCCESS) << error.text;
      if (group != nullptr) body(rank, group);
      cotune_group_destroy(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Small integers, whose sums are exact in any order.
float Sent(int rank, uint64_t index) {
  return static_cast<float>((static_cast<uint64_t>(rank) * 7 + index * 3) % 11 + 1);
}

std::vector<float> Expected(cotune_collective collective, int rank, int world_size, uint64_t count,
                            int root) {
  std::vector<float> values(count * Blocks(collective, false, world_size));
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = ResultAt(collective, i, rank, world_size, count, root, Sent);
  }
  return values;
}

std::string WrongIn(cotune_group* group, cotune_collective collective, uint64_t count,
                    bool is_in_place, int root) {
  const int rank = cotune_group_rank(group);
  const int world_size = cotune_group_size(group);
  const uint64_t sent = count * Blocks(collective, true, world_size);
  const uint64_t received = count * Blocks(collective, false, world_size);
  const uint64_t own = static_cast<uint64_t>(rank) * count;
  std::vector<float> send_memory(sent);
  std::vector<float> recv_memory(std::max(sent, received), -1.0F);
  const bool is_gather = collective == COTUNE_COLLECTIVE_ALL_GATHER;
  const bool is_scatter = collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
  float* recv = recv_memory.data() + (is_in_place && is_scatter ? own : 0);
  float* send = is_in_place ? recv_memory.data() + (is_gather ? own : 0) : send_memory.data();
  for (uint64_t i = 0; i < sent; ++i) send[i] = Sent(rank, i);
  cotune_result result = COTUNE_ERROR_USAGE;
  if (collective == COTUNE_COLLECTIVE_ALL_REDUCE) {
    result = cotune_all_reduce(group, send, recv, count, COTUNE_F32, COTUNE_REDUCE_SUM);
  } else if (is_gather) {
    result = cotune_all_gather(group, send, recv, count, COTUNE_F32);
  } else if (is_scatter) {
    result = cotune_reduce_scatter(group, send, recv, count, COTUNE_F32, COTUNE_REDUCE_SUM);
  } else if (collective == COTUNE_COLLECTIVE_ALL_TO_ALL) {
    result = cotune_all_to_all(group, send, recv, count, COTUNE_F32);
  } else {
    result = cotune_broadcast(group, rank == root ? send : nullptr, recv, count, COTUNE_F32, root);
  }
  if (result != COTUNE_SUCCESS) return cotune_last_error(group);
  const std::vector<float> expected = Expected(collective, rank, world_size, count, root);
  for (uint64_t i = 0; i < expected.size(); ++i) {
    if (recv[i] == expected[i]) continue;
    return fmt::format("collective {} on rank {}: value {} is {} instead of {}", collective, rank,
                       i, recv[i], expected[i]);
  }
  for (uint64_t i = 0; i < sent && !is_in_place; ++i) {
    if (send[i] != Sent(rank, i)) return fmt::format("operand {} has changed", i);
  }
  return "";
}

cotune_result TuneFloats(cotune_group* group, uint32_t collectives, const char* database,
                         bool is_in_place) {
  const uint64_t bytes = 1024;
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = collectives;
  options.sizes_bytes = &bytes;
  options.size_count = 1;
  options.database_path = database;
  options.is_in_place = is_in_place ? 1 : 0;
  return cotune_tune(group, &options, nullptr);
}

nlohmann::json Explained(cotune_group* group, cotune_collective collective, uint64_t count) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = collective;
  call.dtype = COTUNE_F32;
  const bool reduces =
      collective == COTUNE_COLLECTIVE_ALL_REDUCE || collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
  call.reduction = reduces ? COTUNE_REDUCE_SUM : 0;
  call.count = count;
  size_t length = 0;
  EXPECT_EQ(cotune_explain_json(group, &call, nullptr, 0, &length), COTUNE_SUCCESS);
  std::string text(length + 1, '\0');
  EXPECT_EQ(cotune_explain_json(group, &call, text.data(), text.size(), &length), COTUNE_SUCCESS);
  text.resize(length);
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::json LineOf(const nlohmann::json& explained, const std::string& choice) {
  const nlohmann::json measured = explained.value("measured", nlohmann::json::array());
  if (measured.empty()) return nullptr;
  for (const nlohmann::json& each : measured[0].value("choices", nlohmann::json::array())) {
    if (each.value("choice", "") == choice) return each;
  }
  return nullptr;
}

}  // namespace cotune
