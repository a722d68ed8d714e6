// A part of a program: local operations on one GPU. Which ones, the generated header says.
#include "program.cuh"

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ cotune::cuda::Arguments a) {
  cotune::cuda::BeginLaunch(a);
  cotune::cuda::RunPart(a);
}
