// All ranks have come this far on their streams: what goes around the copies of copy engines.
#include "rounds.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Rounds rounds(a);
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  rounds.End(1);
}
