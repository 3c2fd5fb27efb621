# libtandem_cuda.so: every src/kernels/cuda/*.cu, compiled by the nvcc of a system toolkit or of the CUDA wheels. CMake's own
# CUDA language is not used: it asks for a whole toolkit, and the .cu files see raw pointers and streams only.
option(TANDEM_CUDA "Build libtandem_cuda.so (./dev setup cuda fetches a compiler)" OFF)
if(NOT TANDEM_CUDA)
  return()
endif()

set(cuda_wheel ${TANDEM_CACHE}/cuda/nvidia/cu13)
find_program(TANDEM_NVCC nvcc HINTS ${cuda_wheel}/bin /usr/local/cuda/bin)
if(NOT TANDEM_NVCC)
  message(FATAL_ERROR "No nvcc. Run ./dev setup cuda, or set TANDEM_NVCC to a CUDA 13.0 compiler.")
endif()
# The wheels' include and lib where they are the compiler, else those of nvcc's own toolkit.
get_filename_component(cuda_root ${TANDEM_NVCC} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS ${TANDEM_CACHE}/cuda/nvidia/nccl/include ${tandem_wheels}/nvidia/nccl/include)
if(NOT TANDEM_NCCL_INCLUDE)
  message(FATAL_ERROR "No nccl.h. Run ./dev setup cuda, or set TANDEM_NCCL_INCLUDE to NCCL's headers.")
endif()
find_library(TANDEM_CUDART libcudart.so.13 HINTS ${cuda_root}/lib ${cuda_root}/lib64 REQUIRED)

# Hopper natively, and PTX from which the driver makes code for other chips.
set(TANDEM_CUDA_ARCHITECTURES "-gencode=arch=compute_90a,code=sm_90a;-gencode=arch=compute_80,code=compute_80"
  CACHE STRING "nvcc's -gencode options")
set(cuda_flags -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall -I${CMAKE_SOURCE_DIR}/src
  -I${cuda_root}/include ${TANDEM_CUDA_ARCHITECTURES})

# cuda_object(SOURCE OUT): OUT is the object that nvcc makes of SOURCE.
function(cuda_object source out)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d
    COMMAND ${TANDEM_NVCC} ${cuda_flags} -MD -MF ${object}.d -c ${source} -o ${object} COMMENT "nvcc ${name}.cu")
  set(${out} ${object} PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
foreach(source ${cuda_sources})
  cuda_object(${source} object)
  list(APPEND cuda_objects ${object})
endforeach()
# The library: kernels, what hands them tensors (*_ops.cc), the ranks' communicator, and the planners that need no GPU.
file(GLOB cuda_ops CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*_ops.cc)
set(cuda_planners ${CMAKE_SOURCE_DIR}/src/kernels/cuda/attention_plan.cc ${CMAKE_SOURCE_DIR}/src/kernels/id_groups.cc
  ${CMAKE_SOURCE_DIR}/src/kernels/chunks.cc ${CMAKE_SOURCE_DIR}/src/base/error.cc ${CMAKE_SOURCE_DIR}/src/base/rng.cc)
file(GLOB cuda_ranks CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/parallel/cuda/*.cc)
list(APPEND cuda_ranks ${CMAKE_SOURCE_DIR}/src/parallel/communicator.cc ${CMAKE_SOURCE_DIR}/src/parallel/collectives.cc)
add_library(tandem_cuda SHARED ${cuda_objects} ${cuda_ops} ${cuda_planners} ${cuda_ranks}
  ${CMAKE_SOURCE_DIR}/src/kernels/cuda/table.cc)
set_target_properties(tandem_cuda PROPERTIES LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
  CXX_VISIBILITY_PRESET default)
target_include_directories(tandem_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(tandem_cuda SYSTEM PRIVATE ${cuda_root}/include ${TANDEM_NCCL_INCLUDE})
# NCCL itself comes with libtorch_cuda.so, whose version this is.
target_link_libraries(tandem_cuda PRIVATE tandem_torch ${TANDEM_CUDART} ${tandem_wheels}/torch/lib/libtorch_cuda.so
  ${tandem_wheels}/torch/lib/libc10_cuda.so)
target_link_options(tandem_cuda PRIVATE -Wl,--allow-shlib-undefined -Wl,--no-as-needed)
install(TARGETS tandem_cuda LIBRARY DESTINATION lib/tandem)

# tests/cuda/*.cu: programs that carry the kernels and the CUDA runtime in them, for a machine with a GPU.
if(TANDEM_TESTS)
  file(GLOB cuda_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*_test.cu)
  foreach(source ${cuda_tests})
    get_filename_component(name ${source} NAME_WE)
    cuda_object(${source} object)
    add_executable(cuda_${name} ${object} ${cuda_objects} ${cuda_planners})
    set_target_properties(cuda_${name} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(cuda_${name} PRIVATE ${cuda_root}/lib/libcudart_static.a rt dl)
    target_include_directories(cuda_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  endforeach()
endif()
