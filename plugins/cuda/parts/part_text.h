// From a program without a collective to the text of the header that kernels/part.cu includes: what
// each thread loads, computes and stores. Pure.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_TEXT_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_TEXT_H_

#include <string>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// The text has neither names nor rows, so that one kernel serves every R. Columns are constants;
// the number of threads of a row is an option of the compiler. Equal programs have equal texts.
std::string PartText(const sdk::Program& program, const PartStages& stages);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_TEXT_H_
