# libtandem_ray.so, beside the program, where ./dev setup ray has fetched Ray's wheels. It is built with the old ABI of
# std::string, as libray_api.so is; shims/ray/ray_abi.h is the line between the two.
set(TANDEM_RAY_VENV "${TANDEM_CACHE}/ray" CACHE PATH "virtual environment with the wheels ray and ray-cpp")
file(GLOB tandem_ray_cpp ${TANDEM_RAY_VENV}/lib/python3.*/site-packages/ray/cpp)
if(NOT EXISTS "${tandem_ray_cpp}/lib/libray_api.so")
  return()
endif()

set(ray_shim ${CMAKE_SOURCE_DIR}/shims/ray)
set(src ${CMAKE_SOURCE_DIR}/src)
add_library(tandem_ray SHARED ${ray_shim}/rank_actor.cc ${ray_shim}/ray_driver.cc
  # What an actor watches its process with: the same sources, in the other ABI.
  ${src}/control/runtime.cc ${src}/control/runtime_local.cc ${src}/control/pulse.cc ${src}/control/worker_json.cc
  ${src}/base/error.cc ${src}/observe/host_info.cc)
target_compile_definitions(tandem_ray PRIVATE _GLIBCXX_USE_CXX11_ABI=0 FMT_HEADER_ONLY)
target_compile_features(tandem_ray PRIVATE cxx_std_20)
target_compile_options(tandem_ray PRIVATE -O1)
target_include_directories(tandem_ray PRIVATE ${src})
target_include_directories(tandem_ray SYSTEM PRIVATE ${tandem_ray_cpp}/include)
# Ray looks up its entry points in this library by name, so libray_api must be needed by it.
target_link_libraries(tandem_ray PRIVATE -Wl,--no-as-needed ${tandem_ray_cpp}/lib/libray_api.so -Wl,--as-needed
  ${CMAKE_DL_LIBS} Threads::Threads)
set_target_properties(tandem_ray PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  BUILD_RPATH ${tandem_ray_cpp}/lib)
