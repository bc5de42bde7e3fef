# `make install`, find_package(gravac) and pkg-config.
include(CMakePackageConfigHelpers)

install(TARGETS gravac EXPORT gravac ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS gravac_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY gravac/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gravac
        FILES_MATCHING PATTERN "*.h" PATTERN "*testing.h" EXCLUDE PATTERN "c_api.h" EXCLUDE)

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
