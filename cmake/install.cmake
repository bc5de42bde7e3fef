# `make install`, find_package(gravac) and pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS gravac EXPORT gravac ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS gravac_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET gravac_trainer)
  install(TARGETS gravac_trainer LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gravac)
endif()

# THE FRONT DOOR: the headers that users include; no others are installed. Start with engine.h, or with
# gravac.h in C. Each can be read on its own, and says what it promises and which threads may call it.
set(public_headers
  checkpoint.h               # state as named sections, and as bytes
  config.h                   # options by name
  engine.h                   # gradients in, means out
  gravac.h                   # the same for C, and so for any language
  report.h                   # what a step was like
  reshard.h                  # states for another number of ranks
  codec/options.h            # how an engine works
  comm/comm.h                # how ranks talk: to be implemented for a new backend
  comm/paced_comm.h          # a simulated slow network around any comm
  comm/route.h
  comm/thread_comm.h         # ranks as threads, for tests
  memory/hand_over.h         # what an SGD does with a mean
  memory/momentum_options.h
  policy/gain.h
  policy/plan.h
  policy/rates.h
  policy/policies.h
  policy/policy.h            # policies and their options
  util/clock.h
  util/layout.h              # the parameters of a model
  util/named_numbers.h
  util/names.h
  util/options.h
  util/require.h             # Error
  wire/values.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH room)
  install(FILES gravac/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gravac/${room})
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gravac)
install(EXPORT gravac NAMESPACE gravac:: FILE gravac-targets.cmake DESTINATION ${package_dir})
# Adapters are components: find_package(gravac COMPONENTS mpi) gives gravac::gravac_mpi.
foreach(adapter mpi gloo)
  if(TARGET gravac_${adapter})
    install(TARGETS gravac_${adapter} EXPORT gravac_${adapter} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT gravac_${adapter} NAMESPACE gravac:: FILE gravac-${adapter}-targets.cmake
            DESTINATION ${package_dir})
    install(FILES adapters/${adapter}_comm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gravac/adapters)
  endif()
endforeach()
if(TARGET gravac_mpi)
  install(FILES adapters/gravac_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gravac/adapters)
endif()
configure_package_config_file(cmake/gravac-config.cmake.in ${PROJECT_BINARY_DIR}/gravac-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gravac-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gravac-config.cmake ${PROJECT_BINARY_DIR}/gravac-config-version.cmake
        DESTINATION ${package_dir})

configure_file(cmake/gravac.pc.in ${PROJECT_BINARY_DIR}/gravac.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gravac.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
