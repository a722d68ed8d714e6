#include <cstdio>
#include <cstdlib>

#include "benchmarks/host/contenders.h"

namespace cotune::bench {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

class Cotune : public Contender {
 public:
  Cotune(const std::string& plugin_path, const std::vector<cotune_collective>& collectives,
         const std::vector<uint64_t>& sizes_bytes, const std::string& database_path) {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.plugin_path = plugin_path.c_str();
    options.ignores_database = 1;  // it tunes by itself
    cotune_error error{};
    error.struct_size = sizeof(error);
    if (cotune_group_create(&options, &group_, &error) != COTUNE_SUCCESS) Die(error.text);
    cotune_tune_options tune{};
    tune.struct_size = sizeof(tune);
    for (const cotune_collective each : collectives) tune.collectives |= 1u << each;
    tune.sizes_bytes = sizes_bytes.data();
    tune.size_count = sizes_bytes.size();
    tune.budget_ns = 600 * kSecondNs;
    tune.database_path = database_path.empty() ? nullptr : database_path.c_str();
    Check(cotune_tune(group_, &tune, nullptr));
  }

  ~Cotune() override { cotune_group_destroy(group_); }

  std::string Name() const override { return "cotune"; }

  void Prepare(const Workload& workload) override { workload_ = workload; }

  void Run() override {
    const Workload& w = workload_;
    switch (w.collective) {
      case COTUNE_COLLECTIVE_ALL_REDUCE:
        return Check(
            cotune_all_reduce(group_, w.send, w.recv, w.count, COTUNE_F32, COTUNE_REDUCE_SUM));
      case COTUNE_COLLECTIVE_ALL_GATHER:
        return Check(cotune_all_gather(group_, w.send, w.recv, w.count, COTUNE_F32));
      case COTUNE_COLLECTIVE_REDUCE_SCATTER:
        return Check(
            cotune_reduce_scatter(group_, w.send, w.recv, w.count, COTUNE_F32, COTUNE_REDUCE_SUM));
      case COTUNE_COLLECTIVE_ALL_TO_ALL:
        return Check(cotune_all_to_all(group_, w.send, w.recv, w.count, COTUNE_F32));
      default:
        return Check(cotune_broadcast(group_, w.recv, w.recv, w.count, COTUNE_F32, 0));
    }
  }

  std::string Chosen() override {
    cotune_call call{};
    call.struct_size = sizeof(call);
    call.collective = workload_.collective;
    call.dtype = COTUNE_F32;
    const bool reduces = workload_.collective == COTUNE_COLLECTIVE_ALL_REDUCE ||
                         workload_.collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
    call.reduction = reduces ? COTUNE_REDUCE_SUM : 0;
    call.count = workload_.count;
    char text[4096];
    Check(cotune_explain(group_, &call, text, sizeof(text), nullptr));
    // The first line ends with the choice.
    const std::string line = std::string(text).substr(0, std::string(text).find('\n'));
    return line.substr(line.rfind(' ') + 1);
  }

 private:
  void Check(cotune_result result) {
    if (result != COTUNE_SUCCESS) Die(cotune_last_error(group_));
  }

  cotune_group* group_ = nullptr;
  Workload workload_;
};

}  // namespace

uint64_t Workload::SendElements() const {
  const bool has_blocks =
      collective == COTUNE_COLLECTIVE_REDUCE_SCATTER || collective == COTUNE_COLLECTIVE_ALL_TO_ALL;
  return has_blocks ? count * static_cast<uint64_t>(world_size) : count;
}

uint64_t Workload::RecvElements() const {
  const bool has_blocks =
      collective == COTUNE_COLLECTIVE_ALL_GATHER || collective == COTUNE_COLLECTIVE_ALL_TO_ALL;
  return has_blocks ? count * static_cast<uint64_t>(world_size) : count;
}

void Die(const std::string& text) {
  std::fprintf(stderr, "peers_bench: %s\n", text.c_str());
  std::exit(1);
}

std::unique_ptr<Contender> MakeCotune(const std::string& plugin_path,
                                      const std::vector<cotune_collective>& collectives,
                                      const std::vector<uint64_t>& sizes_bytes,
                                      const std::string& database_path) {
  return std::make_unique<Cotune>(plugin_path, collectives, sizes_bytes, database_path);
}

}  // namespace cotune::bench
