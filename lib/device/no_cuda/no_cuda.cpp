// Stands in for cuda/ where the program is built without it.
#include "lib/device/device.hpp"

namespace spillway::device {

int cuda_device_count() { return 0; }

}  // namespace spillway::device
