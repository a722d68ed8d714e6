// Adds up what the ranks sent, by the reference evaluator: rounded once, whatever the type.
#ifndef COTUNE_PLUGINS_FAKE_REDUCTION_H_
#define COTUNE_PLUGINS_FAKE_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {

// Bytes of one element; 0 for types that this backend does not have.
uint32_t ElementBytes(cotune_dtype_t dtype);

// to[i] = blocks[0][i] op blocks[1][i] op ..., for `count` elements of a type and a reduction
// (COTUNE_SUM to COTUNE_AVERAGE) that this backend has. Integers wrap.
void Reduce(cotune_dtype_t dtype, uint32_t reduction, uint64_t count,
            const std::vector<std::vector<std::byte>>& blocks, std::byte* to);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_REDUCTION_H_
