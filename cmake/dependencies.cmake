# Parts that are not ours. Debian packages are found by CMake; libtorch and Arrow come out of their Python wheels.
foreach(package nlohmann_json yaml-cpp CLI11 spdlog fmt Threads)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} not found. On Debian 12 run ./dev setup, or: apt-get install "
      "nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev")
  endif()
endforeach()
find_package(OpenMP REQUIRED COMPONENTS CXX)

if(NOT EXISTS ${TANDEM_SITE_PACKAGES}/torch/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No torch wheel in TANDEM_SITE_PACKAGES='${TANDEM_SITE_PACKAGES}'. Run ./dev setup.")
endif()
file(GLOB cuda_runtime_dir ${TANDEM_SITE_PACKAGES}/nvidia/cu13/lib)
add_library(tandem_torch INTERFACE)
target_include_directories(tandem_torch SYSTEM INTERFACE
  ${TANDEM_SITE_PACKAGES}/torch/include ${TANDEM_SITE_PACKAGES}/torch/include/torch/csrc/api/include)
target_compile_definitions(tandem_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(tandem_torch INTERFACE
  ${TANDEM_SITE_PACKAGES}/torch/lib/libtorch_cpu.so ${TANDEM_SITE_PACKAGES}/torch/lib/libc10.so OpenMP::OpenMP_CXX)
target_link_options(tandem_torch INTERFACE -Wl,--allow-shlib-undefined)

file(GLOB arrow_lib ${TANDEM_SITE_PACKAGES}/pyarrow/libarrow.so.*)
file(GLOB parquet_lib ${TANDEM_SITE_PACKAGES}/pyarrow/libparquet.so.*)
add_library(tandem_arrow INTERFACE)
target_include_directories(tandem_arrow SYSTEM INTERFACE ${TANDEM_SITE_PACKAGES}/pyarrow/include)
target_link_libraries(tandem_arrow INTERFACE ${arrow_lib} ${parquet_lib})

set(CMAKE_BUILD_RPATH ${TANDEM_SITE_PACKAGES}/torch/lib ${cuda_runtime_dir} ${TANDEM_SITE_PACKAGES}/pyarrow)
