# tandem_folder(NAME dep...): src/NAME becomes the library tandem_NAME (tandem::NAME once installed); its dependencies
# are named, so that the include directions of docs/architecture.md are visible here too.
function(tandem_folder name)
  set(library tandem_${name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  set(scope PUBLIC)
  if(sources)
    add_library(${library} STATIC ${sources})
    tandem_precompile(${library} ${name})
    # Nothing hot in these: a quarter off the time to compile them.
    if(name MATCHES "^(config|observe|text|data|reward|control|programs|dashboard|serve|engine|preflight|planner)$")
      target_compile_options(${library} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
  else()
    set(scope INTERFACE)
    add_library(${library} INTERFACE)  # headers only
  endif()
  target_include_directories(${library} ${scope}
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include/tandem>)
  target_compile_features(${library} ${scope} cxx_std_20)
  target_link_libraries(${library} ${scope} ${ARGN})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY tandem_libraries ${library})
endfunction()
