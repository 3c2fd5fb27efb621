# Headers that many files include, parsed once: `standard` for files that never see torch, `torch` for the rest. A file still
# includes what it uses: TANDEM_PRECOMPILE=OFF builds the same tree, and clang-tidy reads each file without them.
option(TANDEM_PRECOMPILE "Parse the most used headers once" ON)

set(precompiled_standard <algorithm> <array> <cmath> <filesystem> <functional> <map> <memory> <optional> <ranges> <span>
  <string> <string_view> <vector> <fmt/format.h> <nlohmann/json.hpp>)

function(tandem_precompiled_set name)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled_${name}.cc CONTENT "")
  add_library(tandem_precompiled_${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled_${name}.cc)
  target_link_libraries(tandem_precompiled_${name} PRIVATE spdlog::spdlog fmt::fmt nlohmann_json::nlohmann_json ${ARGN})
  target_precompile_headers(tandem_precompiled_${name} PRIVATE ${precompiled_standard})
  # What the compiler cache asks for (see its manual, "Precompiled headers").
  target_compile_options(tandem_precompiled_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# tandem_precompile(TARGET FOLDER): TARGET's files start from the set that suits src/FOLDER.
function(tandem_precompile target folder)
  set(name standard)
  if(folder MATCHES "^(kernels|parallel|model|rollout|train|engine|serve|programs|app)$")
    set(name torch)
  endif()
  if(TANDEM_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM tandem_precompiled_${name})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

if(TANDEM_PRECOMPILE)
  tandem_precompiled_set(standard)
  tandem_precompiled_set(torch tandem_torch)
  target_precompile_headers(tandem_precompiled_torch PRIVATE <ATen/core/Tensor.h>)
endif()
