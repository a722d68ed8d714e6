// A call in words, for errors that name the calls of several ranks.
#ifndef COTUNE_PLUGINS_SDK_CALL_TEXT_H_
#define COTUNE_PLUGINS_SDK_CALL_TEXT_H_

#include <cstdint>
#include <string>

namespace cotune::sdk {

// The fields as another process wrote them: enumerations of problem.h, in which any number may be.
struct CallFields {
  uint64_t collective = 0;
  uint64_t type = 0;
  uint64_t reduction = 0;  // of collectives that reduce
  uint64_t root = 0;       // of a broadcast
  uint64_t count = 0;      // elements, as in the ABI's table
  // The high 32 bits of the digest of the program that the call is a step of; 0: none.
  uint64_t program = 0;
};

// "all_reduce of 1024 f32 (sum)", with " in program 01234567..." where it is a step of one; "?"
// stands for a number that is no value of its enumeration.
std::string CallText(const CallFields& call);

// The error of a rank that finds another call at a peer: the names of both ranks, their calls as
// text, and the number of the launch in the group.
struct DifferentCalls {
  std::string peer;
  std::string peer_call;
  std::string self;
  std::string own_call;
  uint64_t launch = 0;
};
std::string DifferentCallsText(const DifferentCalls& calls);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_CALL_TEXT_H_
