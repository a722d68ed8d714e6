// The rules by which a family of kernels takes or refuses a problem: each says why the problem is
// not for the family, or nothing when it is. All are pure, for problems of two ranks or more.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_FAMILY_RULES_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_FAMILY_RULES_H_

#include <string>

#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// The elements have a bit pattern to spare, and data is added up. The second rule: not both.
std::string NeedsSpareBits(const sdk::Problem& problem);
std::string NeedsNoSpareBits(const sdk::Problem& problem);

// Sizes between which a family can win against its neighbours.
std::string NeedsFewBytesForOneShot(const sdk::Problem& problem);
std::string NeedsFewBytesForOneSender(const sdk::Problem& problem);
std::string NeedsBytesForTwoShot(const sdk::Problem& problem);
std::string NeedsBytesForBatches(const sdk::Problem& problem);
std::string NeedsBytesForFlags(const sdk::Problem& problem);
std::string NeedsBytesForBarriers(const sdk::Problem& problem);
std::string NeedsBytesForRing(const sdk::Problem& problem);
std::string NeedsBytesForTree(const sdk::Problem& problem);
std::string NeedsBytesForCopies(const sdk::Problem& problem);
std::string NeedsBytesForSegments(const sdk::Problem& problem);

// One exchange sends as many bytes as two.
std::string NeedsTwoRanks(const sdk::Problem& problem);
// Ranks besides the sender and one receiver.
std::string NeedsThreeRanksToPassOn(const sdk::Problem& problem);
std::string NeedsThreeRanksForTree(const sdk::Problem& problem);

std::string NeedsRegisteredBuffers(const sdk::Problem& problem);
std::string NeedsTwoBuffers(const sdk::Problem& problem);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_FAMILY_RULES_H_
