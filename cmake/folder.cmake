# tandem_folder(NAME dep...): src/NAME becomes the library tandem_NAME; its dependencies are named, so that the
# include directions of docs/architecture.md are visible here too.
function(tandem_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  add_library(tandem_${name} STATIC ${sources})
  target_include_directories(tandem_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>)
  target_link_libraries(tandem_${name} PUBLIC ${ARGN})
endfunction()
