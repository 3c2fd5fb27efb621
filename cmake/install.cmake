# cmake --install gives a tree that needs neither the checkout nor the wheels: the wheels' shared libraries are copied to
# lib/tandem, found by a relative RPATH, and the tree may be moved. Debian's own libraries (yaml-cpp, spdlog, fmt) are not.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_MESSAGE LAZY)

set_target_properties(tandem PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/tandem")
install(TARGETS tandem RUNTIME_DEPENDENCY_SET tandem_runtime RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET tandem_runtime
  DIRECTORIES ${tandem_wheel_library_dirs}
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|gcc_s|stdc\\+\\+)\\.so"
  POST_EXCLUDE_REGEXES "^/(usr/)?lib"
  DESTINATION lib/tandem)

get_property(libraries GLOBAL PROPERTY tandem_libraries)
install(TARGETS ${libraries} EXPORT tandem ARCHIVE DESTINATION lib)
install(EXPORT tandem NAMESPACE tandem:: FILE tandem-targets.cmake DESTINATION lib/cmake/tandem)
install(FILES ${CMAKE_BINARY_DIR}/shims/libtandem_tokenizers.a DESTINATION lib)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/ DESTINATION include/tandem FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${tandem_torch_include}/ DESTINATION include/tandem-torch PATTERN fmt EXCLUDE)  # the package's fmt serves both

foreach(library ${tandem_arrow_libraries})
  get_filename_component(name ${library} NAME)
  list(APPEND arrow_names ${name})
endforeach()
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tandem-config.cmake.in ${CMAKE_BINARY_DIR}/tandem-config.cmake
  INSTALL_DESTINATION lib/cmake/tandem)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tandem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tandem-config.cmake ${CMAKE_BINARY_DIR}/tandem-config-version.cmake
  DESTINATION lib/cmake/tandem)
