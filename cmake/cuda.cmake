# libtandem_cuda.so: every src/kernels/*.cu, compiled by the nvcc of a system toolkit or of the CUDA wheels. CMake's own
# CUDA language is not used: it asks for a whole toolkit, and the .cu files see raw pointers and streams only.
option(TANDEM_CUDA "Build libtandem_cuda.so (./dev setup cuda fetches a compiler)" OFF)
if(NOT TANDEM_CUDA)
  return()
endif()

set(cuda_wheel ${tandem_wheels}/nvidia/cu13)
find_program(TANDEM_NVCC nvcc HINTS ${cuda_wheel}/bin /usr/local/cuda/bin)
if(NOT TANDEM_NVCC)
  message(FATAL_ERROR "No nvcc. Run ./dev setup cuda, or set TANDEM_NVCC to a CUDA 13.0 compiler.")
endif()
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cu)
if(NOT cuda_sources)
  message(FATAL_ERROR "src/kernels holds no .cu file yet, so there is nothing for the cuda preset to build.")
endif()

# Hopper natively, and PTX from which the driver makes code for other chips.
set(cuda_flags -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall -I${CMAKE_SOURCE_DIR}/src
  -I${cuda_wheel}/include -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=compute_80)
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d
    COMMAND ${TANDEM_NVCC} ${cuda_flags} -MD -MF ${object}.d -c ${source} -o ${object} COMMENT "nvcc ${name}.cu")
  list(APPEND cuda_objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
add_library(tandem_cuda SHARED ${cuda_objects})
set_target_properties(tandem_cuda PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
target_link_libraries(tandem_cuda PRIVATE ${cuda_wheel}/lib/libcudart.so.13)
target_link_options(tandem_cuda PRIVATE -Wl,--allow-shlib-undefined)
install(TARGETS tandem_cuda LIBRARY DESTINATION lib/tandem)
