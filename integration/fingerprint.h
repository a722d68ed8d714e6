// The named fields of a machine under which a measurement is valid.
#ifndef COTUNE_INTEGRATION_FINGERPRINT_H_
#define COTUNE_INTEGRATION_FINGERPRINT_H_

#include <cstdint>
#include <map>
#include <string>

namespace cotune {

// "architecture", "cores", "cpu_model", "numa_nodes": the same for every process of a machine,
// whatever cores it is bound to. Reads /proc and /sys.
std::map<std::string, std::string> MachineFields();

// Equal where the fields are equal; enters every problem, so that backends may look at the machine
// through it only.
uint64_t TopologyDigest(const std::map<std::string, std::string>& machine);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_FINGERPRINT_H_
