#include "plugins/nccl/nccl_tuner.h"

#include <dlfcn.h>

namespace cotune::nccl {
namespace {

thread_local TunerScope* current_scope = nullptr;

constexpr float kNotAllowed = -1;

// `channels` other than 0 replaces NCCL's own number: an answer without a decision must be 0.
NcclResult Answer(float** cost_table, int algorithms, int protocols, int* channels) {
  *channels = 0;
  if (current_scope != nullptr) {
    current_scope->Decide(reinterpret_cast<float*>(cost_table), algorithms, protocols, channels);
  }
  return kNcclSuccess;
}

NcclResult InitV5(void** context, uint64_t, size_t, size_t, TunerLogger, void*, void*) {
  *context = nullptr;
  return kNcclSuccess;
}

NcclResult InitV3(size_t, size_t, TunerLogger, void** context) {
  *context = nullptr;
  return kNcclSuccess;
}

NcclResult CollInfoV4(void*, int, size_t, int, float** cost_table, int algorithms, int protocols,
                      int, int* channels) {
  return Answer(cost_table, algorithms, protocols, channels);
}

NcclResult CollInfoV3(void*, int, size_t, int, float** cost_table, int algorithms, int protocols,
                      int* channels) {
  return Answer(cost_table, algorithms, protocols, channels);
}

NcclResult Finalize(void*) { return kNcclSuccess; }

}  // namespace

TunerScope::TunerScope(const std::optional<ForcedDecision>& decision)
    : decision_(decision), outer_(current_scope) {
  current_scope = this;
}

TunerScope::~TunerScope() { current_scope = outer_; }

void TunerScope::Decide(float* cost_table, int algorithms, int protocols, int* channels) {
  was_asked_ = true;
  was_followed_ = false;
  allowed_ = 0;
  for (int a = 0; a < algorithms; ++a) {
    for (int p = 0; p < protocols; ++p) {
      float& cost = cost_table[a * protocols + p];
      if (cost < 0) continue;
      const bool is_ours = a <= static_cast<int>(Algorithm::kRing) && p < kTunerProtocols;
      if (is_ours) {
        allowed_ |= DecisionBit(static_cast<Algorithm>(a), static_cast<Protocol>(p));
      } else {
        cost = kNotAllowed;
      }
    }
  }
  if (!decision_) {
    was_followed_ = true;
    return;
  }
  if ((allowed_ & DecisionBit(decision_->algorithm, decision_->protocol)) == 0) return;
  const int wanted =
      static_cast<int>(decision_->algorithm) * protocols + static_cast<int>(decision_->protocol);
  for (int cell = 0; cell < algorithms * protocols; ++cell) {
    if (cell != wanted) cost_table[cell] = kNotAllowed;
  }
  cost_table[wanted] = 0;
  *channels = decision_->channels;
  was_followed_ = true;
}

const char* TunerLibraryPath() {
  Dl_info info{};
  const bool found = dladdr(&ncclTunerPlugin_v5, &info) != 0 && info.dli_fname != nullptr;
  return found ? info.dli_fname : "";
}

}  // namespace cotune::nccl

namespace nccl = cotune::nccl;

extern "C" {
const nccl::TunerV5 ncclTunerPlugin_v5 = {"cotune", nccl::InitV5, nccl::CollInfoV4, nccl::Finalize};
const nccl::TunerV4 ncclTunerPlugin_v4 = {"cotune", nccl::InitV3, nccl::CollInfoV4, nccl::Finalize};
const nccl::TunerV3 ncclTunerPlugin_v3 = {"cotune", nccl::InitV3, nccl::CollInfoV3, nccl::Finalize};
}
