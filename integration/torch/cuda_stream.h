// PyTorch's CUDA streams, by functions that only a PyTorch with CUDA has.
#ifndef COTUNE_INTEGRATION_TORCH_CUDA_STREAM_H_
#define COTUNE_INTEGRATION_TORCH_CUDA_STREAM_H_

#include <cstdint>

namespace cotune::torch_operators {

// The stream that PyTorch enqueues on, on this thread; OperatorError where PyTorch has no CUDA.
void* CurrentCudaStream(int32_t device);

// Whether a CUDA graph is being captured on it.
bool IsCapturing(void* stream);

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_CUDA_STREAM_H_
