# Writes OUTPUT with the commit of SOURCE; touches it only when the commit changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
  set(revision unknown)
endif()
set(text "// Made by app/revision.cmake.\n#include \"app/revision.hpp\"\n
namespace spillway::app {
char const* source_revision() { return \"${revision}\"; }
}  // namespace spillway::app\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
