# Every concept's test lies beside it: gravac/ROOM/X_test.cc tests gravac/ROOM/X.h.
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)

add_library(gravac_testing INTERFACE)
target_link_libraries(gravac_testing INTERFACE gravac gravac_flags GTest::gtest_main rapidcheck)

# Unit tests run once in `make test`, under the sanitizers; in release those of code that leans on the
# optimiser, which vectorises it, and what needs more than the library.
set(optimised compressor half kernels packing step step_allocation wire)

# gravac_test(ROOM/NAME [SHARDS]): long tests run in shards, so that all cores have work.
function(gravac_test place)
  cmake_path(GET place FILENAME name)
  if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT name IN_LIST optimised)
    return()
  endif()
  add_executable(${name}_test gravac/${place}_test.cc)
  target_link_libraries(${name}_test PRIVATE gravac_testing)
  target_compile_options(${name}_test PRIVATE -O1)  # they compile longer than they run
  set(shards 1)
  if(ARGC GREATER 1)
    set(shards ${ARGV1})
  endif()
  foreach(shard RANGE 1 ${shards})
    set(test ${name})
    if(shards GREATER 1)
      set(test ${name}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name}_test)
    # A fixed seed: the same cases every time.
    set_tests_properties(${test} PROPERTIES ENVIRONMENT
      "RC_PARAMS=seed=1;GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

gravac_test(aggregator 2)
gravac_test(checkpoint)
gravac_test(c_api)
if(TARGET c_api_test)
  target_sources(c_api_test PRIVATE gravac/c_api_test_user.c)
endif()
gravac_test(comm/comm)
gravac_test(codec/select/compressor)
gravac_test(config)
gravac_test(costs)
gravac_test(codec/exchange)
gravac_test(policy/gain)
gravac_test(util/layout)
gravac_test(wire/half)
gravac_test(codec/select/histogram)
gravac_test(util/kernels)
gravac_test(memory/momentum)
gravac_test(util/names)
gravac_test(overlap)
gravac_test(comm/paced_comm)
gravac_test(wire/packing)
gravac_test(policy/policy)
gravac_test(util/random)
gravac_test(reshard)
gravac_test(codec/select/step 4)
gravac_test(wire/wire)
gravac_test(util/workers)

add_test(NAME layering COMMAND ${PROJECT_SOURCE_DIR}/tests/layering ${PROJECT_SOURCE_DIR})
if(Torch_FOUND)  # only then are there models and data to name
  add_test(NAME cli COMMAND ${PROJECT_SOURCE_DIR}/tests/cli $<TARGET_FILE:gravac_program>)
endif()
if(TARGET gravac_program)
  add_test(NAME program COMMAND ${PROJECT_SOURCE_DIR}/tests/program $<TARGET_FILE:gravac_program>)
endif()
if(NOT CMAKE_CXX_FLAGS MATCHES sanitize)
  gravac_test(codec/select/step_allocation)
  add_test(NAME fuzz COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz ${PROJECT_SOURCE_DIR} 60)
  add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/tests/install ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
endif()

# What the trainer writes: read by TensorBoard, and whole whenever the writer is killed.
add_executable(checkpoint_writer tests/checkpoint_writer.cc)
target_link_libraries(checkpoint_writer PRIVATE gravac_files gravac_flags)
add_test(NAME checkpoints COMMAND ${PROJECT_SOURCE_DIR}/tests/checkpoints $<TARGET_FILE:checkpoint_writer>)
if(NOT CMAKE_CXX_FLAGS MATCHES sanitize)
  add_executable(event_writer tests/event_writer.cc)
  target_link_libraries(event_writer PRIVATE gravac_files gravac_flags)
  add_test(NAME tensorboard COMMAND ${PROJECT_SOURCE_DIR}/tests/tensorboard $<TARGET_FILE:event_writer>
           ${PROJECT_BINARY_DIR}/venv-tensorboard)
  set_tests_properties(tensorboard PROPERTIES SKIP_RETURN_CODE 77)
endif()

# Real processes over real backends. Those that tell time run alone.
if(TARGET gravac_mpi AND TARGET gravac_gloo)
  foreach(backend gloo mpi)  # a program each: torch takes a second to load
    add_executable(rank_${backend} tests/rank.cc)
    target_link_libraries(rank_${backend} PRIVATE gravac_${backend} gravac_flags CLI11::CLI11)
    target_compile_options(rank_${backend} PRIVATE -O1)
    foreach(scenario laws refuse straggler kill stop)
      add_test(NAME ${backend}_${scenario}
               COMMAND ${PROJECT_SOURCE_DIR}/tests/processes $<TARGET_FILE:rank_${backend}> ${backend} ${scenario})
      set_tests_properties(${backend}_${scenario} PROPERTIES TIMEOUT 600)
    endforeach()
    set_tests_properties(${backend}_straggler ${backend}_kill ${backend}_stop PROPERTIES RUN_SERIAL TRUE)
  endforeach()
  target_compile_definitions(rank_gloo PRIVATE GRAVAC_GLOO)
endif()

# The Python package, under Debian's torch and torch 2.13.
if(TARGET gravac_python)
  foreach(part debian wheel examples)
    add_test(NAME python_${part} COMMAND ${PROJECT_SOURCE_DIR}/tests/python ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${part})
    set_tests_properties(python_${part} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
  endforeach()
  set_tests_properties(python_examples PROPERTIES DEPENDS python_wheel)
endif()
