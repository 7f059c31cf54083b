// The one summation of all communicators, so that their results agree to the bit.
#pragma once

#include <span>

namespace spillway::comm {

/// result[i] = ((terms[0][i] + terms[1][i]) + terms[2][i]) + ... in fp32. Each term has
/// result.size() elements; one of them may be `result` itself.
void sum_in_rank_order(std::span<float const* const> terms, std::span<float> result);

}  // namespace spillway::comm
