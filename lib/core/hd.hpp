// The one preprocessor switch of the project: marks code that runs on host and device.
#pragma once

#if defined(__CUDACC__)
#define SPILLWAY_HD __host__ __device__
#else
#define SPILLWAY_HD
#endif
