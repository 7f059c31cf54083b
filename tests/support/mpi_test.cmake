# Test programs that run under mpirun.
#   spillway_mpi_test(name RANKS 1 2 4 SOURCES ... LINK ... [LABELS ...])
# builds name_test with the main of mpi_main.cpp and runs it once for each number of ranks.
set(SPILLWAY_MPI_MAIN "${CMAKE_CURRENT_LIST_DIR}/mpi_main.cpp")

# More ranks than cores, as root in a container, unbound: the tests run anywhere. The library's own
# leaks at exit are none of ours.
set(SPILLWAY_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0)

function(spillway_mpi_test name)
  cmake_parse_arguments(ARG "" "" "RANKS;SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name}_test ${SPILLWAY_MPI_MAIN} ${ARG_SOURCES})
  target_link_libraries(${name}_test PRIVATE spillway_test_support spillway_comm ${ARG_LINK})
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}.on_${ranks}_ranks
             COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -np ${ranks} $<TARGET_FILE:${name}_test>)
    set_tests_properties(${name}.on_${ranks}_ranks PROPERTIES
                         ENVIRONMENT "${SPILLWAY_MPI_ENVIRONMENT}" PROCESSORS ${ranks} TIMEOUT 300
                         LABELS "mpi;${ARG_LABELS}")
  endforeach()
endfunction()
