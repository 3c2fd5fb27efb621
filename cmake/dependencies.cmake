# Parts that are not ours. Debian packages are found by CMake, never downloaded by it; libtorch and Arrow come out of
# their Python wheels, which ./dev setup fetches, checks by hash and keeps outside the tree.
foreach(package nlohmann_json yaml-cpp CLI11 spdlog fmt Threads)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} not found. On Debian 12 run ./dev setup, or: apt-get install "
      "nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev")
  endif()
endforeach()

# Where ./dev setup keeps what it fetched and built.
set(TANDEM_CACHE "$ENV{TANDEM_CACHE}")
if(NOT TANDEM_CACHE AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(TANDEM_CACHE "$ENV{XDG_CACHE_HOME}/tandem")
elseif(NOT TANDEM_CACHE)
  set(TANDEM_CACHE "$ENV{HOME}/.cache/tandem")
endif()
set(tandem_wheels "${TANDEM_SITE_PACKAGES}")
if(NOT tandem_wheels)
  file(GLOB tandem_wheels ${TANDEM_CACHE}/venv/lib/python3.*/site-packages)
endif()
if(NOT EXISTS "${tandem_wheels}/torch/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No torch wheel in '${tandem_wheels}'. Run ./dev setup, or set TANDEM_SITE_PACKAGES.")
endif()

# Imported, so that an installed tree names them and cmake/tandem-config.cmake.in says where they lie there.
# The wheel carries headers of another fmt, whose code would be compiled into every file anew: the package's own come first.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/one_fmt)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/one_fmt/fmt SYMBOLIC)
set(tandem_torch_include ${tandem_wheels}/torch/include)
add_library(tandem_torch INTERFACE IMPORTED GLOBAL)
target_include_directories(tandem_torch SYSTEM INTERFACE
  ${CMAKE_BINARY_DIR}/one_fmt ${tandem_torch_include} ${tandem_torch_include}/torch/csrc/api/include)
target_compile_definitions(tandem_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# libtorch's own OpenMP runtime, so that its threads and ours are one pool.
target_compile_options(tandem_torch INTERFACE -fopenmp)
foreach(name libtorch_cpu.so libc10.so libgomp.so.1)
  target_link_libraries(tandem_torch INTERFACE ${tandem_wheels}/torch/lib/${name})
endforeach()
target_link_options(tandem_torch INTERFACE -Wl,--allow-shlib-undefined)

# libarrow_s3.so: a library of its own in newer wheels, within libarrow.so before.
file(GLOB tandem_arrow_libraries ${tandem_wheels}/pyarrow/libarrow.so.* ${tandem_wheels}/pyarrow/libparquet.so.*
  ${tandem_wheels}/pyarrow/libarrow_s3.so.*)
add_library(tandem_arrow INTERFACE IMPORTED GLOBAL)
target_include_directories(tandem_arrow SYSTEM INTERFACE ${tandem_wheels}/pyarrow/include)
target_link_libraries(tandem_arrow INTERFACE ${tandem_arrow_libraries})

set(tandem_wheel_library_dirs ${tandem_wheels}/torch/lib ${tandem_wheels}/nvidia/cu13/lib ${tandem_wheels}/pyarrow)
set(CMAKE_BUILD_RPATH ${tandem_wheel_library_dirs})

# cpp-httplib as Debian builds it: a library with OpenSSL in it, which its header must be told. Elsewhere it is a header.
find_path(TANDEM_HTTPLIB_INCLUDE httplib.h)
find_library(TANDEM_HTTPLIB cpp-httplib)
if(NOT TANDEM_HTTPLIB_INCLUDE)
  message(FATAL_ERROR "cpp-httplib not found. On Debian 12 run ./dev setup, or: apt-get install libcpp-httplib-dev")
endif()
add_library(tandem_httplib INTERFACE IMPORTED GLOBAL)
target_include_directories(tandem_httplib SYSTEM INTERFACE ${TANDEM_HTTPLIB_INCLUDE})
if(TANDEM_HTTPLIB)
  find_package(OpenSSL REQUIRED)
  target_compile_definitions(tandem_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT)
  target_link_libraries(tandem_httplib INTERFACE ${TANDEM_HTTPLIB} OpenSSL::SSL OpenSSL::Crypto)
endif()
